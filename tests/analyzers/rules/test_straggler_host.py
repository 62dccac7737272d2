"""One slow host: the rank that launches late, whatever its device does."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from captured import fed, sidecar_of
from cpu_loop import cpu_loop
from kineto_run import Script, in_step, loaded
from labelled_runs import Labelled, Runs, abstains, candidates, fires, latest, on_every_rank, only_run, run_of, serious

from ddprof.analyzers.engine import LoadedRun
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.script.alone import Alone
from ddprof.analyzers.job.script.threads import BusyThread
from ddprof.analyzers.job.slowdown import Slowdown, host_slowdown
from ddprof.analyzers.rules.straggler_host import interrupted, slow_hosts, takes_longer, takes_no_longer
from ddprof.causes import CAUSE_CODE
from ddprof.findings import Basis, Candidate
from ddprof.tables import NULL

ID = "straggler.host"
RANKS, STEPS, STEP_S = 12, 30, 1.0
Late = Callable[[int], dict[int, float]]  # of a step: ranks that are late, by how many seconds


def test_names_the_slow_host_where_launches_or_communication_were_recorded(faulty: Labelled, healthy: Labelled) -> None:
    assert fires(faulty, ID, 1).lost_us > 0
    ranks = healthy.job.ranks
    ops = [facts.device_ops.replace(launch_ns=np.full(len(facts.device_ops), NULL)) for facts in ranks]
    unlaunched = [replace(facts, device_ops=own) for facts, own in zip(ranks, ops, strict=True)]
    assert "launch calls" in abstains(ID, run_of(unlaunched).measures)
    hosts = on_every_rank(healthy.measures, is_device_rank=False)
    silent = replace(hosts.job, instances=hosts.job.instances.take(np.empty(0, np.int64)))
    assert "no communication" in abstains(ID, replace(hosts, job=silent))


def test_a_rank_that_only_began_later_has_no_slow_host(labelled: Runs) -> None:
    """It is last in everything, and its host has as much to do as its peers'."""
    run = labelled("launches of sharded units")
    assert ID not in serious(run.report) and not takes_longer(run.measures, (run.measures.job.rank_ids[0],))
    assert takes_longer(labelled(ID).measures, (1,))


def test_a_rank_that_is_fed_more_does_not_do_the_same_work(faulty: Labelled) -> None:
    def named(elements: int) -> list[tuple[int, ...]]:
        measures = fed(faulty, lambda rank, step: elements if rank == 1 else 100)
        return [found.ranks for found in candidates(ID, measures)]

    assert named(1_000) == []
    assert named(300) == [(1,)]  # its host takes eight times as long


@pytest.mark.parametrize(("share", "named"), [(0.4, [2]), (0.1, [])])
def test_a_thread_that_computes_for_as_long_makes_its_rank_late(
    healthy: Labelled, monkeypatch: pytest.MonkeyPatch, share: float, named: list[int]
) -> None:
    """The others wait for rank 2 for 30 % of the step, and its thread is on a CPU for so much of it."""
    measures = on_every_rank(healthy.measures, is_device_rank=False)
    thread = {2: BusyThread("train.py:60 watch()", share)}
    monkeypatch.setattr("ddprof.analyzers.rules.straggler_host.threads_alone", lambda _: thread)
    assert interrupted(replace(measures, late_us=0.3 * measures.step_us * (np.arange(4) == 2))).tolist() == named


@pytest.mark.parametrize(("steps", "named"), [([2], []), ([1, 4, 7], [3])], ids=["in one step", "in three of eight"])
def test_a_pause_makes_a_slow_host_where_it_comes_again(steps: list[int], named: list[int]) -> None:
    per_step = np.ones((4, 8))
    per_step[3, steps] = 5.0
    time_us = 100_000.0 * per_step.mean(axis=1)
    slowdown = Slowdown(np.median(per_step, axis=1), per_step, time_us, np.ones(4), np.zeros(4))
    positions, typical_us = slow_hosts(slowdown, None, 1_000.0)
    assert positions.tolist() == named and typical_us.tolist() == [100_000.0] * 4


def test_a_stage_of_a_pipeline_is_measured_against_its_own_replicas() -> None:
    pipeline: Any = SimpleNamespace(stages=((0, 1), (2, 3)))
    factor, time_us = np.array([1.0, 1.5, 1.0, 1.0]), 1e3 * np.array([10.0, 15.0, 20.0, 20.0])
    slowdown = Slowdown(factor, np.repeat(factor[:, None], 8, axis=1), time_us, np.ones(4), np.zeros(4))
    positions, typical_us = slow_hosts(slowdown, pipeline, 1_000.0)
    assert positions.tolist() == [1] and typical_us.tolist() == [10e3, 10e3, 20e3, 20e3]


def horovod(folder: Path, late: Late) -> LoadedRun:
    """A Horovod job. Each step reduces two tensors; ranks come within 4 ms."""
    draw, events = np.random.default_rng(7), []
    for pid in range(2):
        events.append({"ph": "M", "pid": pid, "name": "process_name", "args": {"name": f"grad.{pid}"}})
        for step in range(STEPS):
            begin = step * STEP_S + 0.1 * pid
            ready = {rank: begin + 0.004 * draw.random() + late(step).get(rank, 0.0) for rank in range(RANKS)}
            end = max(ready.values()) + 0.05
            events.append({"ph": "B", "pid": pid, "name": "NEGOTIATE_ALLREDUCE", "ts": begin * 1e6})
            events += [{"ph": "X", "pid": pid, "name": f"{rank}", "ts": at * 1e6} for rank, at in ready.items()]
            events.append({"ph": "E", "pid": pid, "ts": end * 1e6})
    (folder / "timeline.json").write_text(json.dumps(events))
    return only_run(folder)


def found(folder: Path, late: Late) -> dict[int, str]:
    """Ranks that are named, with how loudly."""
    report = horovod(folder, late).report
    return {f.ranks[0]: report.severity_of(f) for f in report.findings if f.id == "straggler.host"}


@pytest.mark.parametrize(
    ("late", "named"),
    [
        (lambda step: {(2, 5)[step % 2]: 0.08}, {2: "warning", 5: "warning"}),
        (lambda step: {(2, 5, 9)[step % 3]: 0.08}, {2: "warning", 5: "warning", 9: "warning"}),
        (lambda step: {3: 0.02, step % RANKS: 0.08 * (step % 2)}, {3: "info"}),  # by little, beside others by chance
        (lambda step: {0: 0.5} if step < 10 else {7: 0.1}, {7: "warning"}),  # rank 0 only while the job starts
        (lambda step: {7: 0.1} if step > 14 else {}, {7: "warning"}),  # from one step on
        (lambda step: {step % RANKS: 0.05}, {}),
        (lambda step: {}, {}),
    ],
    ids=["two", "three", "by little", "at first", "from half on", "all in turn", "healthy"],
)
def test_each_rank_late_beyond_chance_is_named_alone(tmp_path: Path, late: Late, named: dict[int, str]) -> None:
    assert found(tmp_path, late) == named


@pytest.mark.parametrize(("beside", "named"), [((), []), (None, [(3,)])], ids=["saves", "anything else"])
def test_a_rank_that_is_last_for_what_it_saves_has_no_slow_host(
    tmp_path: Path, beside: tuple[Alone, ...] | None, named: list[tuple[int, ...]]
) -> None:
    measures = horovod(tmp_path, lambda step: {3: 0.1}).measures
    line = Alone("train.py:31 audit()", "", 100_000.0, 0.0, beside_saves=beside)
    assert [one.ranks for one in candidates(ID, replace(measures, alone={3: line}))] == named


def test_the_range_in_which_a_slow_host_spends_its_time_is_named(tmp_path: Path) -> None:
    """An optimizer of one's own that takes one host twice as long, as on one of eight H100s."""

    def work(script: Script, rank: int, step: int) -> None:
        for name, slow in (("forward", False), ("Optimizer.step#Muon.step", True)):
            with script.frame(name, "user_annotation"):
                for _ in range(20):
                    script.launch(dur_us=5.0)
                    script.idle(200.0 if slow and rank == 1 else 60.0)

    first = next(finding for finding in loaded(in_step(4, 5, work), tmp_path).report.findings if finding.id == ID)
    (told,) = [seen.text for seen in first.evidence if "of its host per step" in seen.text]
    assert first.ranks == (1,) and told.startswith("Optimizer.step#Muon.step")


LOADER = "input.straggler"


def candidate(measures: Measures, identifier: str = LOADER) -> Candidate:
    return Candidate(identifier, "late", 1.0, Basis.COMPARED, measures.ranks([latest(measures)]))


def with_more(measures: Measures, position: int, cause: str, us: float) -> Measures:
    ledger = measures.ledger_us.copy()
    ledger[position, CAUSE_CODE[cause]] += us
    return replace(measures, ledger_us=ledger)


def test_a_late_rank_stands_unless_its_peers_take_longer_for_something_else(labelled: Runs) -> None:
    measures = labelled(LOADER).measures
    assert takes_no_longer(candidate(measures), measures) is None
    for position in np.setdiff1d(np.arange(len(measures.job.ranks)), [latest(measures)]).tolist():
        measures = with_more(measures, position, "gc", measures.step_us)
    assert "no rank waits for it" in (takes_no_longer(candidate(measures), measures) or "")


def test_waits_for_what_was_loaded_before_the_trace_clear_no_rank(labelled: Runs) -> None:
    """Peers wait three times as long as the rank loads longer in the traced steps: it had begun before them."""
    measures = labelled(LOADER).measures
    waiting = replace(measures, late_us=3 * measures.late_us)
    assert takes_no_longer(candidate(waiting), waiting) is None
    assert takes_no_longer(candidate(waiting, "straggler.unexplained"), waiting) is not None


@pytest.mark.parametrize("cause", ["comm_wait", "comm_transfer", "pipeline_bubble"])
def test_meeting_the_others_is_no_time_of_its_own(labelled: Runs, cause: str) -> None:
    measures = labelled(LOADER).measures
    assert np.allclose(with_more(measures, 0, cause, 1e6).own_us, measures.own_us)


def test_a_host_that_lacked_a_cpu_is_free_for_no_longer(tmp_path: Path) -> None:
    def stopped(rank: int, us: float) -> RankFacts:
        return cpu_loop(tmp_path, before=lambda script: script.idle(us), rank=rank)

    ranks = [stopped(0, 50.0), stopped(1, 3_000.0)]
    steps = [{"index": index, "profiled": True, "waited_ns": 2_950_000} for index in ranks[1].steps["index"].tolist()]
    lacking = [ranks[0], replace(ranks[1], sidecar=sidecar_of({"steps": steps}))]
    factor, own = (host_slowdown(every, None).factor[1] for every in (ranks, lacking))
    assert factor > 1.5 and own == pytest.approx(1.0, abs=0.02)
