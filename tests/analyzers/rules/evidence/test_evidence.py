"""Parts of findings beside their words: examples, cores that workers and threads take, occurrences, advice."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from captured import on_cpu, with_sidecars
from corpus import FAULTY
from cpu_loop import Chore, cpu_loop
from kineto_run import Script
from labelled_runs import Runs, candidate, fires, run_of
from sampled_stacks import totals, with_stacks

from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.names import COLLECTIVE_OPS
from ddprof.analyzers.job.assemble import job_facts
from ddprof.analyzers.job.host_costs import UNIT_HOOKS
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.traffic.kinds import METRICS
from ddprof.analyzers.job.traffic.units import UnitLatency
from ddprof.analyzers.rules.evidence import spans
from ddprof.analyzers.rules.evidence.loader_fixes import taken_by_workers, taking
from ddprof.analyzers.rules.evidence.present import is_new, present_in
from ddprof.analyzers.rules.evidence.redundant import line_of_pass, share_on_gathered
from ddprof.analyzers.rules.evidence.sharded import UnitCosts
from ddprof.analyzers.rules.evidence.spans import largest_wait, occurrences
from ddprof.analyzers.rules.host_stalled import threads_take_cores
from ddprof.findings import Change, Evidence, Fix

OF_RANKS = ("straggler.compute", "straggler.host", "input.straggler", "comm.slow_link")
NO_EVENT = {"memory.headroom", "input.unsharded"}  # a level and a setting


def _own_clock_ns(measures: Measures, said: Evidence) -> tuple[int, int, int]:
    """Position of the rank, start and end on its own clock."""
    job = measures.job
    assert said.rank is not None and said.start_us is not None and said.end_us is not None
    position = job.rank_ids.index(said.rank)
    shift = job.shift_ns(position)
    return position, round(said.start_us * 1e3) + shift, round(said.end_us * 1e3) + shift


@pytest.mark.parametrize("name", FAULTY)
def test_what_is_found_can_be_jumped_to(labelled: Runs, name: str) -> None:
    run = labelled(name)
    found = [f for f in run.report.findings if f.id == name]
    last_us = max(
        (int(f.steps["end_ns"][-1]) - run.job.clock.offset_ns(p) - run.job.origin_ns) / 1e3
        for p, f in enumerate(run.job.ranks)
    )
    for finding in found:
        timed = [e for e in finding.evidence if e.start_us is not None and e.end_us is not None]
        assert bool(timed) == (name not in NO_EVENT) and all(e.rank in run.report.run.ranks for e in timed)
        assert name not in OF_RANKS or timed[0].rank in finding.ranks  # the first event is the culprit's
        assert all(0 <= (e.start_us or 0.0) < (e.end_us or 0.0) <= last_us + 1.0 for e in timed)


def test_the_culprit_works_from_its_first_step_on_while_the_other_waits(labelled: Runs) -> None:
    measures = labelled("straggler.compute").measures
    work, wait = largest_wait(measures, 2)
    assert (work.start_us, work.end_us) == pytest.approx((wait.start_us, wait.end_us), abs=0.01)
    assert (work.rank, wait.rank != 2) == (2, True)
    position, start, end = _own_clock_ns(measures, work)
    ops = measures.job.ranks[position].device_ops
    held = np.minimum(ops["end_ns"], end) - np.maximum(ops["start_ns"], start)
    runs = np.array([measures.job.ranks[position].strings[name] == work.event for name in ops["name"]])
    assert held[runs & (held > 0)].sum() > 0.5 * (end - start)
    _, start, end = _own_clock_ns(measures, largest_wait(measures, 2)[0])
    ranks = list(measures.job.ranks)
    middle = (start + end) // 2
    ranks[2] = replace(ranks[2], steps=ranks[2].steps.replace(start_ns=np.maximum(ranks[2].steps["start_ns"], middle)))
    late = replace(measures, job=replace(measures.job, ranks=tuple(ranks)))
    assert _own_clock_ns(late, largest_wait(late, 2)[0])[1:] == pytest.approx((middle, end), abs=2)


def test_the_example_of_a_transfer_is_one_and_is_exposed(labelled: Runs) -> None:
    measures = labelled("comm.bandwidth_bound").measures
    traffic = measures.comm.traffic[0]
    (said,) = spans.exposed_transfer(measures, traffic)
    position, start, end = _own_clock_ns(measures, said)
    members = measures.job.members
    mine = (members["rank"] == position) & (abs(members["ready_ns"] - start) < 2) & (abs(members["end_ns"] - end) < 2)
    (row,) = np.flatnonzero(mine)
    assert COLLECTIVE_OPS[measures.job.instances["op"][members["instance"][row]]] == traffic.op == said.event
    exposed = measures.job.ranks[position].exposed
    assert traffic.exposed_us > 0
    assert (np.minimum(exposed["end_ns"], end) - np.maximum(exposed["start_ns"], start)).max() > 0


def test_examples_are_the_slow_the_waiting_the_longest_and_the_steps_own_events(labelled: Runs) -> None:
    run = labelled("comm.slow_link")
    finding = next(f for f in run.report.findings if f.id == "comm.slow_link")
    said = next(e for e in finding.evidence if e.start_us is not None)
    transfers_ns = run.job.instances["transfer_ns"]
    _, start, end = _own_clock_ns(run.measures, said)
    assert end - start > 1.3 * np.median(transfers_ns[run.job.instances["op"] == COLLECTIVE_OPS.index(str(said.event))])
    measures = labelled("pipeline.bubble").measures
    (said,) = spans.longest_stage_wait(measures)
    position, start, end = _own_clock_ns(measures, said)
    members = measures.job.members
    rows = np.flatnonzero((members["rank"] == position) & (abs(members["start_ns"] - start) < 2))
    assert measures.job.instances["is_message"][members["instance"][rows]].all() and len(rows)
    waits = (members["ready_ns"] - members["start_ns"])[measures.job.instances["is_message"][members["instance"]]]
    assert end - start == pytest.approx(waits.max(), abs=2)
    measures = labelled("compute.precision").measures
    (said,) = spans.longest_fp32_gemm(measures)
    position, start, end = _own_clock_ns(measures, said)
    facts = measures.job.ranks[position]
    assert said.event in {facts.strings[n] for n in facts.kernel_groups["name"][facts.kernel_groups["is_fp32"]]}
    assert end - start >= facts.kernel_groups["median_ns"][facts.kernel_groups["is_fp32"]].max()
    measures = labelled("compute.unfused_optimizer").measures
    (said,) = spans.optimizer_step(measures)
    position, start, end = _own_clock_ns(measures, said)
    ops = measures.job.ranks[position].device_ops
    inside = ((ops["start_ns"] >= start - 1) & (ops["end_ns"] <= end + 1)).sum()
    assert inside >= measures.optimizer_kernels[position] * 0.9
    measures = labelled("clean.ddp").measures
    assert spans.longest_stage_wait(measures) == [] and spans.longest_fp32_gemm(measures) == []
    assert spans.slowest_transfer(measures, (0,), rank=99) == []


WORLD = 4


def record(step_us: float, cores: float, waited: float, of_worker: float | None = 0.3) -> dict[str, Any]:
    """A rank of a host of 4 cores whose workers compute on so many; shares of the time without a CPU, of both."""
    cpu_ns = int(cores * step_us * 1e3)
    fetching: dict[str, Any] = {"workers": 2, "fetch_ns": 2 * cpu_ns, "cpu_ns": cpu_ns, "samples": 32}
    if of_worker is not None:
        fetching["waited_ns"] = int(of_worker * fetching["fetch_ns"])
    spent = {"dur_ns": 10**9, "cpu_ns": 5 * 10**8, "waited_ns": int(waited * 10**9)}
    processors = {"usable": 4, "local_ranks": WORLD, "cores": "0-3"}
    return {"fetching": fetching, "processors": processors, "cpu_waits": {"windows": [spent], "run": spent}}


@pytest.mark.parametrize(
    ("cores", "waited", "of_worker", "cost"),
    [
        ((0.6, 0.6, 0.6, 0.6), 0.2, 0.3, 0.2 / 0.7),
        ((0.01, 0.01, 0.01, 1.57), 0.2, 0.3, 0.2 / 0.7),  # those of one rank
        ((0.6, 0.6, 0.6, 0.6), 0.02, 0.3, None),  # ranks have their CPUs
        ((0.6, 0.6, 0.6, 0.6), 0.2, 0.0, None),  # workers have theirs: something else takes those of the ranks
        ((0.15, 0.15, 0.15, 0.15), 0.2, 0.3, 0.15),  # what they take is less than the waits
        ((0.04, 0.04, 0.04, 0.04), 0.2, 0.3, None),  # they take little
        ((0.6, 0.6, 0.6, 0.6), 0.2, None, None),  # not counted
    ],
)
def test_what_workers_take(
    labelled: Runs, cores: tuple[float, ...], waited: float, of_worker: float | None, cost: float | None
) -> None:
    run = labelled("clean.ddp")
    assert len(run.job.ranks) == WORLD
    per_batch_us = run.measures.step_us / run.measures.host_counts["dataloader"][0]
    measures = with_sidecars(run, *[record(per_batch_us, each, waited, of_worker) for each in cores])
    taken = taken_by_workers(measures)
    assert (taken is not None) is (cost is not None)
    one, several = taking(measures, alone=True), taking(measures, alone=False)
    if taken is None:
        assert one is several is None
        return
    assert (taken.cost, taken.least) == (pytest.approx(cost, rel=0.01), pytest.approx(0.7 * taken.cost))
    assert taken.cores.tolist() == pytest.approx(list(cores), abs=0.01)
    found = one if 0.01 in cores else several
    assert found is not None and (one is None or several is None)
    assert found.ranks == ((run.job.rank_ids[3],) if 0.01 in cores else ())
    used = f"{max(cores):.1f}" if 0.01 in cores else f"{max(cores):.0%}".replace("%", " %")
    assert f"use {used} of 4 cores" in found.summary and "wait for a CPU for 20 % of the time" in found.summary


LINE = "train.py:60 pack()"


@pytest.mark.parametrize(
    ("cores", "waited", "cost"),
    [
        ((0.0, 0.0, 0.0, 0.9), 0.2, 0.9 / 4),  # what it takes
        ((0.9, 0.9, 0.9, 0.9), 0.2, 0.2 / 0.7),  # what ranks wait
        ((0.0, 0.0, 0.0, 0.2), 0.2, None),  # it takes little
        ((0.0, 0.0, 0.0, 0.9), 0.02, None),  # ranks have their CPUs, as beside a thread that waits for the interpreter
        ((0.0, 0.0, 0.0, 0.0), 0.2, None),
    ],
)
def test_what_threads_take(labelled: Runs, cores: tuple[float, ...], waited: float, cost: float | None) -> None:
    run = labelled("clean.ddp")
    times = [{"dur_ns": 10**9, "cpu_ns": 5 * 10**8, "waited_ns": int(waited * 10**9)} for _ in cores]
    windows = [
        spent | {"beside": [{"name": "pack", "cpu_ns": int(used * 10**9)}] if used else []}
        for spent, used in zip(times, cores, strict=True)
    ]
    processors = {"usable": 4, "local_ranks": 4, "cores": "0-3"}
    measures = on_cpu(run, *({"processors": processors, "cpu_waits": {"windows": [one]}} for one in windows))
    seen = totals(("rest", 0, 9), thread="pack")
    ranks = [replace(with_stacks(f, ("train.py", 60, "pack", None)), script_totals=seen) for f in measures.job.ranks]
    told = threads_take_cores(replace(measures, job=replace(measures.job, ranks=tuple(ranks))))
    assert (told is not None) is (cost is not None)
    if told is not None:
        assert told.ranks == ((run.job.rank_ids[3],) if cores[0] == 0.0 else ())
        assert told.lost_us == pytest.approx(cost * measures.step_us, rel=0.01)
        assert f"uses 0.9 of 4 cores, in {LINE}" in told.summary


def test_a_save_in_one_step_of_three_is_told_and_doubted(labelled: Runs) -> None:
    run = labelled("host.checkpoint")
    told = fires(run, "host.checkpoint").evidence[0].text
    found = re.search(r"per traced step: once in 3 steps, ([\d.]+) (µs|ms|s); how often it recurs", told)
    assert found is not None, told
    each_us = float(found[1]) * {"µs": 1, "ms": 1e3, "s": 1e6}[found[2]]
    assert each_us / 3 == pytest.approx(float(run.measures.host_spans_us["checkpoint"].max()), rel=0.02)
    # Its price per step assumes that it comes again as often.
    (found,) = [f for f in labelled("host.checkpoint").report.findings if f.id == "host.checkpoint"]
    assert "one_event" in found.doubts and not occurrences(labelled("clean.ddp").measures, 0, "gc").evidence


@pytest.mark.parametrize(("name", "cause"), [("host.allocator", "allocator"), ("input.starved", "dataloader")])
def test_a_cost_of_every_step_is_told_per_step_alone(labelled: Runs, name: str, cause: str) -> None:
    assert not occurrences(labelled(name).measures, 0, cause).evidence


def launching(folder: Path, *names: str) -> RankFacts:
    """A launch-bound rank with host ranges of these names."""
    script = Script()
    for _ in script.steps(3):
        script.launch(times=40)
        for name in names:
            script.host(name, 3.0)
    return script.facts(folder)


def advice(given: RankFacts) -> str:
    fixes = candidate("host.launch_bound", run_of([given]).measures).fixes
    return " ".join(f"{fix.setting} {fix.current} {fix.suggested} {fix.patch} {fix.why}" for fix in fixes)


def test_only_what_a_program_does_not_do_yet_is_advised_to_it(tmp_path: Path) -> None:
    given = launching(tmp_path)
    assert "eager" in advice(given)
    assert "reduce-overhead" not in advice(launching(tmp_path, "cudaGraphLaunch"))
    words = advice(replace(given, device=replace(given.device, kind="rocm")))
    assert "torch.compile" in words and "CUDA" not in words and "reduce-overhead" not in words
    assert "torch.compile" not in advice(replace(given, device=replace(given.device, kind="mtia")))
    foreign = tuple(s.replace("aten::", "my_").replace("Prof", "") for s in given.strings)
    assert "torch" not in advice(replace(given, strings=foreign))


@pytest.mark.parametrize("name", ["Torch-Compiled Region: 0/1", "## Call CompiledFxGraph fud ##", "triton_poi_fused_0"])
def test_a_compiled_one_is_not_called_eager(tmp_path: Path, name: str) -> None:
    given = launching(tmp_path, name)
    assert present_in(job_facts([given])).is_compiled and "eager" not in advice(given)


@pytest.mark.parametrize("current,suggested,expected", [("25", "25.0", False), ("2", "4", True), (None, "4", True)])
def test_a_fix_suggests_another_value(current: str | None, suggested: str, expected: bool) -> None:
    assert is_new(Fix("bucket_cap_mb", suggested, "", "", current)) is expected


def metric_and_log(script: Script) -> None:
    with script.frame("train.py(60): update"):
        with script.frame("train.py(50): gather_all"):
            script.idle(1_000.0)
        script.idle(2_000.0)
    with script.frame("train.py(80): note"):
        script.idle(1_000.0)


def test_only_a_call_that_gathers_goes_with_what_it_gathers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measures = run_of([cpu_loop(tmp_path, after=metric_and_log, rank=rank) for rank in range(2)]).measures
    assert share_on_gathered(measures, 0) == 0.0
    needless: Any = {METRICS: None}
    lines = ["train.py:50 gather_all(), in all_gather_object()"]
    monkeypatch.setattr("ddprof.analyzers.rules.evidence.redundant.called_at", lambda *_: lines)
    assert share_on_gathered(replace(measures, needless=needless), 0) == pytest.approx(0.75, abs=0.01)


@pytest.mark.parametrize(
    ("phase", "samples", "said"),
    [
        *(("backward", 9, ["train.py:39 main()"]), ("forward", 9, ["train.py:37 main()"])),
        ("backward", 2, []),  # chance
        ("", 9, []),
    ],
)
def test_the_line_of_the_loop_calls_the_pass(labelled: Runs, phase: str, samples: int, said: list[str]) -> None:
    module = ("torch/nn/modules/module.py", 1, "_call_impl", 0)
    forward = ("train.py", 37, "main", None), module, ("model.py", 5, "forward", 1)
    backward = ("train.py", 39, "main", None), ("torch/_tensor.py", 2, "backward", 3)
    facts = with_stacks(labelled("clean.ddp").job.ranks[0], *forward, *backward)
    seen = totals(("forward", 2, samples), ("backward", 4, samples))
    assert line_of_pass(replace(facts, script_totals=seen), phase) == said


@pytest.mark.parametrize(
    ("units", "latency_share", "mean_bytes", "merged"),
    [
        (33, 0.5, 18_000.0, 7),  # so many make a message that is not tiny
        (33, 0.5, 2_000_000.0, 1),
        (33, 0.5, 0.0, 1),  # sizes were not recorded
        (33, 0.8, 2_000_000.0, 4),  # as many as make latency half of a call
        (12, 0.5, 1_000.0, 3),  # four are left to overlap
        (33, 0.4, 18_000.0, 1),
    ],
)
def test_how_many_units_should_be_one(units: int, latency_share: float, mean_bytes: float, merged: int) -> None:
    latency = UnitLatency(1e5, latency_share, True)
    assert UnitCosts(units, 1, latency, 0.0, 0.0, 0.0, True, False, mean_bytes).merged == merged


def hooks(script: Script) -> None:
    """FSDP's Python around the passes of four units, with what it calls inside."""
    for name in ("pre_forward", "post_forward", "pre_backward", "post_backward_reduce"):
        with script.frame(f"FSDP::{name} (0)", "user_annotation"), script.frame("FSDP::all_gather", "user_annotation"):
            script.idle(2_000.0)


@pytest.mark.parametrize(("chore", "gain_us"), [(hooks, 6_000.0), (None, 0.0)])
def test_fewer_units_need_less_python_of_a_cpu_rank(tmp_path: Path, chore: Chore | None, gain_us: float) -> None:
    """Three quarters of 8 ms per step."""
    run = run_of([cpu_loop(tmp_path, after=chore)])
    changed_us = run.pricer.step_us((Change("scale_part", (), (0.25,), UNIT_HOOKS),))
    assert run.measures.step_us - changed_us == pytest.approx(gain_us, rel=0.05, abs=1.0)
