"""The whole run beside the traced steps: pauses, workers made again, and the step without the profiler."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from captured import on_cpu, sidecar_of, steps, timed_steps, with_sidecars
from cpu_loop import cpu_loop
from labelled_runs import Runs, candidates, run_of
from msgspec import structs
from step_timers import loaded, priced

from ddprof.analyzers.job.whole_run.called import calling_us
from ddprof.analyzers.job.whole_run.pauses import _pauses, paused_shares
from ddprof.analyzers.job.whole_run.unprofiled_steps import growth_note, typical_steps, unprofiled_step_us
from ddprof.analyzers.rules import comm_barrier, comm_latency_bound
from ddprof.analyzers.rules.evidence.loader_starts import epoch_starts
from ddprof.findings import Candidate
from ddprof.sidecar import LoaderSettings, Sidecar, StepTimes

MS = 1_000_000


@pytest.mark.parametrize(("traced", "share"), [(range(20, 30), 0.1), (range(20, 55), None)])
def test_steps_in_trace_windows_are_no_part_of_the_run(traced: range, share: float | None) -> None:
    """Every step outside pauses for 10 % of its time; traced ones are ten times as long. Few others are no run."""
    every = timed_steps(((200 if index in traced else 20) * MS for index in range(60)), traced=())
    window = {"start_ns": every[traced[0]]["start_ns"], "end_ns": every[traced[-1]]["end_ns"]}
    gc = [{"start_ns": step["start_ns"] + 1, "dur_ns": 2 * MS} for step in every]
    sidecar = sidecar_of({"steps": every, "windows": [window], "gc": gc})
    pauses = _pauses(sidecar, 0, sidecar.gc)
    assert (pauses is None) is (share is None)
    assert pauses is None or (pauses.share, pauses.steps, pauses.count) == (pytest.approx(share), 40, 40)


def test_pauses_in_the_steps_that_timers_know_count_in_short_runs_too(labelled: Runs) -> None:
    """Rank 0 saves for 4 ms of each of 24 steps of 20 ms; a straggler's timers hold that, and it is no straggler's."""
    timed = {"steps": [step | {"profiled": step["index"] in range(5, 10)} for step in steps(24, 20 * MS)]}
    saves = [{"start_ns": index * 20 * MS + 1, "dur_ns": 4 * MS} for index in range(24)]
    ranks = with_sidecars(labelled("clean.ddp"), timed | {"checkpoints": saves}, timed, timed, timed).job.ranks
    assert paused_shares(ranks).tolist() == pytest.approx([0.2, 0.0, 0.0, 0.0])


EPOCH, STEP_NS, FETCH_NS, START_NS = 8, 50_000_000, 200_000, 100_000_000


def recorded(steps: int = 80, persistent: bool = False, first: int = 0, start_ns: int = START_NS) -> Sidecar:
    """Steps of 50 ms; in the first of each epoch the loader takes `start_ns` longer."""
    found, now = [], 10**15
    for index in range(steps):
        data = FETCH_NS + (start_ns if index % EPOCH == first else 0)
        found.append(StepTimes(index=index, start_ns=now, end_ns=now + STEP_NS + data, data_ns=data, profiled=False))
        now += STEP_NS + data
    loader = LoaderSettings(num_workers=2, persistent_workers=persistent, batches_per_epoch=EPOCH)
    return Sidecar(schema="ddprof.sidecar/1", dataloader=loader, steps=tuple(found))


@pytest.mark.parametrize("first", [0, 3])
def test_every_epoch_but_the_first_starts_workers(first: int) -> None:
    starts = epoch_starts(recorded(first=first))
    assert len(starts) == 10 - (first == 0) and {start.dur_ns for start in starts} == {START_NS}
    assert epoch_starts(recorded(steps=12, first=first)) == []  # a short run says nothing


def said(folder: Path, *sidecars: Sidecar, rule: str = "input.starved") -> list[Candidate]:
    each = enumerate(sidecars if len(sidecars) > 1 else sidecars * 2)
    ranks = [replace(cpu_loop(folder, rank=rank), sidecar=structs.replace(of, rank=rank)) for rank, of in each]
    return candidates(rule, run_of(ranks).measures)


@pytest.mark.parametrize(("rule", "other", "late"), [("input.starved", True, ()), ("input.straggler", False, (0,))])
def test_workers_that_are_made_again_are_kept(tmp_path: Path, rule: str, other: bool, late: tuple[int, ...]) -> None:
    (candidate,) = said(tmp_path, recorded(), recorded(start_ns=START_NS if other else 0), rule=rule)
    assert [fix.setting for fix in candidate.fixes] == ["persistent_workers"] and candidate.ranks == late
    (changed,) = said(tmp_path, structs.replace(recorded(), dataset_changed=True))  # each epoch has other samples
    assert [bool(fix.applies) for fix in (*candidate.fixes, *changed.fixes)] == [True, False]
    share = START_NS / (EPOCH * (STEP_NS + FETCH_NS) + START_NS)
    assert candidate.lost_us == pytest.approx(share * 20_500.0, rel=0.2)


@pytest.mark.parametrize("sidecar", [recorded(persistent=True), recorded(start_ns=200_000)])
def test_workers_that_live_on_or_start_fast_are_not_told(tmp_path: Path, sidecar: Sidecar) -> None:
    assert said(tmp_path, sidecar) == []


def test_the_unprofiled_step_leaves_warm_up_export_and_odd_blocks_out(tmp_path: Path) -> None:
    run = loaded(tmp_path)
    assert unprofiled_step_us(run.job.ranks) is None  # nothing was timed
    assert priced(run, [20_000.0] * 7).unprofiled is None  # too few to say
    bare = priced(run, [18_000.0, 22_000.0] * 6)
    assert bare.unprofiled is not None and bare.unprofiled.step_us == pytest.approx(20_000.0)
    # Of eight blocks of four the two shortest and the two longest go; a pause every fourth step counts in part.
    calm = [20_000.0, 20_000.0, 20_000.0, 28_000.0]
    blocks = [[us / 2 for us in calm]] * 2 + [calm] * 4 + [[us * 3 for us in calm]] * 2
    lengths_us = [us for block in (blocks[i] for i in (2, 0, 6, 3, 1, 4, 7, 5)) for us in block]
    prices = priced(run, lengths_us)
    assert prices.unprofiled is not None and prices.unprofiled.step_us == pytest.approx(22_000.0)
    assert len(typical_steps(prices.graph.ranks[0].facts)) == 16


@pytest.mark.parametrize(
    ("lengths_us", "said"),
    [
        ([20_000.0 + 400.0 * step + 900.0 * (step % 3) for step in range(60)], "from 21.9 ms to 43.5 ms in 60 steps"),
        ([20_000.0 + 50.0 * step for step in range(60)], ""),  # less than a fifth
        ([20_000.0 + 9_000.0 * (step // 6 % 2) for step in range(60)], ""),  # longer in turn
        ([40_000.0 - 400.0 * step for step in range(60)], ""),
        ([20_000.0] * 7, ""),
    ],
)
def test_steps_that_get_longer_over_the_run_are_said(tmp_path: Path, lengths_us: list[float], said: str) -> None:
    notes = growth_note([priced(loaded(tmp_path), lengths_us).graph.ranks[0].facts])
    assert [note.issue.partition("run: ")[2] for note in notes] == [said] * bool(said)


def called(op: str, ms: float, since: int, every: int = 1, noted: bool = False, by: int = 0) -> dict[str, Any]:
    """50 steps of 20 ms, 5 to 9 traced, some longer by a collective; the line on record calls it since step `by`."""
    calls_ns = [int(ms * MS) * (at >= since and (at - since) % every == 0) for at in range(50)]
    timed = zip(timed_steps(20 * MS + ns for ns in calls_ns), calls_ns, strict=True)
    steps = [step | {"forward_ns": 5 * MS, "backward_ns": 10 * MS, "collective_ns": ns} for step, ns in timed]
    place = {"op": op, "file": "/a/train.py", "line": 70, "function": "fit"}
    line = {**place, "size": [16, 512], "dtype": "torch.float32"}
    line |= {"steps": (count := len(range(by or since, 50, every))), "calls": 13 * count}
    line |= {"from_ns": steps[by or since]["start_ns"] + 1, "to_ns": steps[-1]["end_ns"]}
    windows = [{"start_ns": steps[5]["start_ns"], "end_ns": steps[9]["end_ns"]}]
    calls = [{**place, "entered_ns": steps[6]["start_ns"]}] if noted else []
    return {"steps": steps, "windows": windows, "last_calls": [line], "window_calls": calls}


@pytest.mark.parametrize(("op", "rule"), [("all_reduce", comm_latency_bound), ("all_gather_object", comm_barrier)])
def test_the_rule_of_its_kind_names_line_count_and_share(labelled: Runs, op: str, rule: Any) -> None:
    record = called(op, 10.0, since=15)
    record["last_calls"] += [{**record["last_calls"][0], "op": "all_gather", "calls": 999}] * ("object" in op)  # in it
    measures = on_cpu(labelled("clean.ddp"), record)
    (found,) = [one for one in rule.detect(measures) if "outside the trace" in getattr(one, "summary", "")]
    assert f"13 {op} calls per step" in found.summary and "train.py:70 fit()" in found.summary and not found.ranks
    # 35 of the 40 steps after the traced ones hold it, and the one after the window does not count.
    assert found.lost_us / measures.step_us == pytest.approx(35 * 10 / (39 * 20 + 35 * 10), abs=0.01)


@pytest.mark.parametrize(
    "sidecars",
    [
        (called("barrier", 10.0, since=15, noted=True),),  # the traced steps tell it
        (called("barrier", 10.0, since=15, every=9),),  # goes with saving or evaluating
        (called("barrier", 0.5, since=15),),
        (called("barrier", 10.0, since=15, by=49),),  # after the last step, while others scatter
        (called("barrier", 0.0, since=15), called("barrier", 10.0, since=15)),  # the others wait for rank 0
    ],
)
def test_what_is_traced_rare_short_or_waiting_is_none(labelled: Runs, sidecars: tuple[dict[str, Any], ...]) -> None:
    measures = on_cpu(labelled("clean.ddp"), *sidecars)
    assert not any("outside the trace" in getattr(one, "summary", "") for one in comm_barrier.detect(measures))


@pytest.mark.parametrize(("ms", "steps", "is_found"), [(4.0, 35, True), (0.5, 35, False), (4.0, 9, False)])
def test_the_log_has_the_time_of_calls_among_many(labelled: Runs, ms: float, steps: int, is_found: bool) -> None:
    sidecar = called("all_reduce", 0.0, since=15)
    for step in sidecar["steps"]:  # more in the traced ones, by the profiler
        step["collective_ns"] = (5 + 7 * step["profiled"]) * MS
    (line,) = sidecar["last_calls"]
    others = {**line, "op": "all_gather", "line": 44, "from_ns": 11 * 20 * MS, "calls": 100}
    sidecar["window_calls"] = [{**others, "entered_ns": 0}]
    sidecar["last_calls"] = [{**line, "taken_ns": int(35 * ms * MS), "steps": steps}, others]
    measures = on_cpu(labelled("clean.ddp"), sidecar)
    found = [one for one in comm_latency_bound.detect(measures) if "outside the trace" in getattr(one, "summary", "")]
    assert calling_us(measures.job.ranks) == pytest.approx(5_000.0)  # of a typical step, whatever the traced ones have
    assert bool(found) == is_found
    assert not found or found[0].lost_us / measures.step_us == pytest.approx(35 * ms / (40 * 20), rel=0.05)
