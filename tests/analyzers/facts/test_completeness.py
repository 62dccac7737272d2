"""Steps that are in the trace only in part are left out, whatever kind of event is missing."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gloo_traces import TENSOR, Events, all_reduce, in_steps, operator
from kineto_run import Script
from labelled_runs import Runs

from ddprof.analyzers.facts.completeness import complete_steps, lost_pairs_note
from ddprof.analyzers.facts.extract import rank_facts
from ddprof.analyzers.facts.names import is_launch
from ddprof.analyzers.facts.stepping.steps import find_steps
from ddprof.causes import CAUSE_CODE
from ddprof.model import DEVICE_KINDS, HealthNote, Kind, RankTrace
from ddprof.tables import Array

CALLS_AND_KERNELS = (Kind.RUNTIME, *DEVICE_KINDS)
STEPS = 5
SHARE = 0.2  # of the launches that are lost


@pytest.fixture
def trace(labelled: Runs) -> RankTrace:
    """One healthy rank, whose steps are all of one program."""
    return next(labelled("straggler.imbalance").recorded())


def cut(trace: RankTrace, kinds: Any, after_step: float) -> RankTrace:
    """The trace without the events of some kinds that begin after so many steps."""
    start, end = (int(bound[int(after_step)]) for bound in find_steps(trace)[0].bounds)
    is_later = trace.events["ts_ns"] >= start + after_step % 1 * (end - start)
    return replace(trace, events=trace.events.take(~(np.isin(trace.events["kind"], kinds) & is_later)))


def without(trace: RankTrace, gone: Array) -> RankTrace:
    """The trace in which some events (a mask) are of no kind that is read; rows of other tables still hold."""
    return replace(trace, events=trace.events.replace(kind=np.where(gone, Kind.OTHER, trace.events["kind"])))


def launches(trace: RankTrace) -> Array:
    """Rows of the calls that launch."""
    events = trace.events
    return np.flatnonzero(is_launch(trace.strings)[events["name"]] & (events["kind"] == Kind.RUNTIME))


def step_of(trace: RankTrace, rows: Array | slice) -> Array:
    """Position of the step in which each event begins."""
    return np.searchsorted(find_steps(trace)[0]["start_ns"], trace.events["ts_ns"][rows], side="right") - 1


def whole_steps(trace: RankTrace) -> tuple[list[int], bool]:
    """Positions of the complete steps, and whether all that are used are complete."""
    steps = find_steps(trace)[0]
    complete, whole, notes = complete_steps(trace, steps)
    assert bool(notes) == (len(complete) < len(steps) or not whole)
    return np.flatnonzero(np.isin(steps["index"], complete["index"])).tolist(), whole


@pytest.mark.parametrize(
    ("kinds", "after_step", "whole"),
    [
        *((kinds, 2.4, ([0, 1], True)) for kinds in (CALLS_AND_KERNELS, DEVICE_KINDS, (Kind.CPU_OP,))),
        *((kinds, 4.1, ([0, 1, 2, 3], True)) for kinds in (CALLS_AND_KERNELS, DEVICE_KINDS)),
        (CALLS_AND_KERNELS, 0.4, (list(range(STEPS)), False)),  # nothing is complete
    ],
)
def test_a_cut_ends_the_steps(trace: RankTrace, kinds: Any, after_step: float, whole: tuple[list[int], bool]) -> None:
    assert whole_steps(trace) == (list(range(STEPS)), True)
    assert whole_steps(cut(trace, kinds, after_step)) == whole


def without_kernels(trace: RankTrace, in_step: int, which: slice) -> RankTrace:
    """The trace without the kernels of some launches of a step, by their order."""
    gone = trace.events["correlation"][launches(trace)[step_of(trace, launches(trace)) == in_step][which]]
    is_gone = np.isin(trace.events["correlation"], gone)
    return without(trace, np.isin(trace.events["kind"], DEVICE_KINDS) & is_gone)


def test_scattered_records_leave_no_hole_where_as_many_in_a_row_do(trace: RankTrace) -> None:
    """A sixteenth of the kernels of a step: lost one by one by a tracer that loses one in twenty, or all at once."""
    scattered, at_once = without_kernels(trace, 2, slice(None, None, 16)), without_kernels(trace, 2, slice(30, 38))
    assert whole_steps(scattered) == (list(range(STEPS)), True) and whole_steps(at_once) == ([0, 1, 3, 4], True)
    assert whole_steps(without_kernels(trace, 2, slice(None, None, 6))) == ([0, 1, 3, 4], True)  # too many by chance


def test_the_only_step_of_a_file_that_lost_its_end_marks_or_calls_is_not_known_to_be_whole(trace: RankTrace) -> None:
    events = trace.events
    is_mark = np.char.startswith(np.array(trace.strings), "ProfilerStep")[events["name"]]
    number = step_of(trace, slice(None))
    single = without(trace, events["ts_ns"] >= int(np.sort(events["ts_ns"][is_mark])[1]))
    damaged = HealthNote("the file ends inside the event list", "later events are missing", "error")
    assert len(rank_facts(single).steps) == 1 and len(rank_facts(trace).steps) == STEPS
    assert [rank_facts(each).counts["whole"] for each in (trace, single)] == [1, 1]
    assert rank_facts(replace(trace, health=(damaged,))).counts["whole"] == 1
    assert rank_facts(replace(single, health=(damaged,))).counts["whole"] == 0
    for lost, whole in (((STEPS - 1,), 1), (range(1, STEPS), 0), ((2,), 0)):
        facts = rank_facts(without(trace, is_mark & np.isin(number, lost)))
        is_told = any("marks are missing" in note.effect for note in facts.health)
        assert facts.counts["whole"] == whole == (not is_told)
    # A hole takes all between the first mark and the last step: that mark says that there was more.
    holed = rank_facts(without(trace, (number < STEPS - 1) & ~(is_mark & (number == 0))))
    last = rank_facts(without(trace, number < STEPS - 1))
    assert len(holed.steps) == len(last.steps) == last.counts["whole"] == 1
    assert not holed.counts["whole"] and not len(holed.gaps_of("host_sync"))
    assert any("leave some out" in note.issue for note in holed.health)
    # Kernels without their calls, though others have them: in its idle time the host may have launched.
    single = without(trace, number != 0)
    for lost, whole in ((launches(single)[:0], 1), (launches(single)[5::2], 0)):
        facts = rank_facts(without(single, np.isin(np.arange(len(events)), lost)))
        assert len(facts.steps) == 1 and facts.counts["whole"] == whole
        assert any("no launch call" in note.issue for note in facts.health) == (not whole)


def test_copies_alone_show_no_idle_device_and_kernels_that_are_all_missing_are_missed(trace: RankTrace) -> None:
    """Neither kernels nor the calls that launched them were recorded."""
    facts = rank_facts(without(trace, np.isin(trace.events["kind"], (Kind.KERNEL, Kind.RUNTIME))))
    assert len(facts.device_ops) and not facts.counts["kernels"]
    assert len(facts.gaps) and not len(facts.gaps_of("host_sync", "host_launch", "dataloader"))
    called = np.isin(np.arange(len(trace.events)), launches(trace))
    facts = rank_facts(without(trace, called | (trace.events["kind"] == Kind.KERNEL)))
    assert facts.counts["kernels"] == len(facts.device_ops) > 0  # the calls are there, and none launches a kernel
    facts = rank_facts(without(trace, trace.events["kind"] == Kind.KERNEL))
    assert not facts.counts["whole"] and not len(facts.gaps_of("host_sync", "host_launch"))


def test_a_graph_without_its_kernels_is_as_many_lost_launches(trace: RankTrace) -> None:
    """The kernels of each step's first launches are those of one graph, which in one step left none."""
    events, calls = trace.events, launches(trace)
    name, correlation, gone = events["name"].copy(), events["correlation"].copy(), np.zeros(len(events), bool)
    for number in range(STEPS):
        graph = calls[step_of(trace, calls) == number][:20]
        is_of_graph = np.isin(events["correlation"], events["correlation"][graph])
        correlation[is_of_graph], name[graph[0]] = correlation[graph[0]], len(trace.strings)
        gone[graph[1:]] = True
        gone |= is_of_graph & (number == 2) & np.isin(events["kind"], DEVICE_KINDS)
    graphs = replace(trace, strings=[*trace.strings, "cudaGraphLaunch"])
    graphs = replace(graphs, events=events.replace(correlation=correlation, name=name))
    assert whole_steps(without(graphs, gone)) == ([0, 1, 3, 4], True)


@pytest.mark.parametrize(("is_captured", "has_end"), [(True, True), (True, False), (False, False)])
def test_launches_in_a_captured_graph_leave_no_record(tmp_path: Path, is_captured: bool, has_end: bool) -> None:
    script = Script()
    for step in script.steps(4):
        script.launch(times=20)
        if step == 3 and is_captured:
            script.host("cudaStreamBeginCapture", 5.0, "cuda_runtime", correlation=900_000)
        for _ in range(50 * (step == 3)):
            script.launches += 1
            script.host("cudaLaunchKernel", 4.0, "cuda_runtime", correlation=script.launches)
        if has_end:
            script.host("cudaStreamEndCapture", 5.0, "cuda_runtime", correlation=900_001)
    facts = script.facts(tmp_path)
    assert any("no device record" in note.issue for note in facts.health) != is_captured
    assert len(facts.steps) == 3 + is_captured


def without_pairs(trace: RankTrace, is_lost: Callable[[Array, Array], Array]) -> RankTrace:
    """The trace without the launches that `is_lost` says of their correlations and steps, and what they launched."""
    events, starts = trace.events, find_steps(trace)[0]["start_ns"]
    launched = events["correlation"][events["kind"] == Kind.KERNEL]
    rows = np.flatnonzero((events["kind"] == Kind.RUNTIME) & np.isin(events["correlation"], launched))
    step = np.searchsorted(starts, events["ts_ns"][rows], side="right") - 1
    gone = np.isin(events["correlation"], events["correlation"][rows][is_lost(events["correlation"][rows], step)])
    return without(trace, gone)


def test_losses_of_both_halves_and_a_clock_that_is_off_are_said_and_blame_nobody(trace: RankTrace) -> None:
    draw, events = np.random.default_rng(3), trace.events
    lost = without_pairs(trace, lambda calls, _: draw.random(len(calls)) < SHARE)
    early_ns = 10**6 * np.isin(events["kind"], DEVICE_KINDS)
    early = replace(trace, events=events.replace(ts_ns=events["ts_ns"] - early_ns))
    causes = {CAUSE_CODE["unknown"], CAUSE_CODE["memcpy"]}  # copies are recorded, whatever else is lost
    for damaged, words in ((lost, "launch work did so in one step only"), (early, "before the call that launches it")):
        facts = rank_facts(damaged)
        assert [note for note in facts.health if words in note.issue]
        assert not facts.counts["whole"] and set(facts.gaps["cause"].tolist()) <= causes


def test_programs_that_launch_less_once_and_single_lost_records_are_no_lost_pairs(trace: RankTrace) -> None:
    kinds = trace.events["kind"]
    gone = np.isin(kinds, (Kind.KERNEL, Kind.RUNTIME)) & (np.random.default_rng(3).random(len(kinds)) < SHARE / 4)
    less = without_pairs(trace, lambda calls, step: (step == 1) & (calls % 4 == 0))
    for other in (trace, less, without(trace, gone)):
        steps = find_steps(other)[0]
        assert lost_pairs_note(other, steps) == lost_pairs_note(other, steps.take(np.empty(0, np.int64))) == []


# Records numbered by twos lack every other one; a clock set back makes operators overlap.
@pytest.mark.parametrize(("number", "moved_us"), [(1, 0), (2, 0), (1, 300)])
def test_cpu_ranks_with_lost_records_or_clocks_set_are_not_compared(tmp_path: Path, number: int, moved_us: int) -> None:
    def play(rank: int, began: float) -> Events:
        adds = [operator(rank, "aten::add", began + at, 400) for at in (100, 600 - moved_us * rank)]
        spans = [*adds, *all_reduce(rank, began + 20_000 - 10_000 * rank, 8_000, 1_000 + 10_000 * rank)]
        before = round(began / 30_000) * len(spans)
        return [{**e, "args": {**TENSOR, "Ev Idx": (before + at) * number}} for at, e in enumerate(spans)]

    run, is_whole = in_steps(tmp_path / "run", STEPS, 30_000, play), number == 1 and not moved_us
    assert bool(run.job.not_compared) != is_whole and any(f.ranks for f in run.report.findings) == is_whole
    assert not any(f.ranks for f in in_steps(tmp_path / "one", 1, 30_000, play).report.findings)
