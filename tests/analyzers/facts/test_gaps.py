"""Exposed communication and gaps are whole, disjoint and where the trace says."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kineto_run import Script
from labelled_runs import Runs

from ddprof import intervals
from ddprof.analyzers.facts.gaps import busy, exposed_comm, unexplained
from ddprof.analyzers.facts.model import CAUSE_CODE, COMMS, RankFacts, Work
from ddprof.tables import NULL

NAMES = ("clean.ddp", "clean.fsdp", "clean.pp", "host.gc", "input.starved", "comm.slow_link")
SPANS = st.lists(st.tuples(st.integers(0, 80), st.integers(1, 20)), max_size=10)


def sides(spans: list[tuple[int, int]]) -> tuple[list[int], list[int]]:
    return [start for start, _ in spans], [start + length for start, length in spans]


@given(SPANS, SPANS)
def test_exposed_is_communication_not_computing(moving: list[tuple[int, int]], working: list[tuple[int, int]]) -> None:
    """Spans of (start, duration); everything else of the communications is missing."""
    start, end, begun, done = (np.array(side, np.int64) for spans in (moving, working) for side in sides(spans))
    missing = {c.name: np.full(len(moving), NULL if c.dtype == "int64" else 0) for c in COMMS.columns}
    table, compute = COMMS.table({**missing, "start_ns": start, "end_ns": end}), intervals.union(begun, done)
    exposed = exposed_comm(table, compute)
    pieces = (exposed["start_ns"], exposed["end_ns"])
    expected = intervals.subtract(intervals.union(start, end), compute)
    assert int((pieces[1] - pieces[0]).sum()) == intervals.length(expected)
    assert intervals.length(intervals.union(*pieces)) == intervals.length(expected)
    holder = exposed["comm"]
    assert (table["start_ns"][holder] <= pieces[0]).all() and (pieces[1] <= table["end_ns"][holder]).all()


@pytest.mark.parametrize("name", NAMES)
def test_device_time_is_compute_exposed_communication_or_a_gap(labelled: Runs, name: str) -> None:
    """The three never overlap and leave nothing out."""
    for facts in labelled(name).job.ranks:
        lo, hi = int(facts.steps["start_ns"][0]), int(facts.steps["end_ns"][-1])
        compute = intervals.length(intervals.clip(busy(facts.device_ops, Work.COMPUTE), lo, hi))
        exposed = intervals.length(intervals.clip((facts.exposed["start_ns"], facts.exposed["end_ns"]), lo, hi))
        assert compute + exposed + int((facts.gaps["end_ns"] - facts.gaps["start_ns"]).sum()) == hi - lo
        copies = unexplained(facts.gaps)["cause"] == CAUSE_CODE["memcpy"]  # all that stays of a trace with losses
        assert copies.sum() == len(facts.gaps_of("memcpy"))


def idle_ms(facts: RankFacts, cause: str) -> float:
    gaps = facts.gaps_of(cause)
    return float((gaps["end_ns"] - gaps["start_ns"]).sum()) / 1e6


def waiting(folder: Path, *acts: tuple[str, float]) -> RankFacts:
    """Steps that begin with a launch: how long a kernel, a wait at least, or Python of so many us take."""
    script = Script()
    for _ in script.steps(3):
        for act, us in acts:
            if act == "kernel":
                script.launch(dur_us=us)
            elif act == "wait":
                script.synchronise(least_us=us)
            else:
                script.idle(us)
    script.launch()
    script.step(4, script.now_us - 20)
    return script.facts(folder)


def test_a_blocking_call_explains_the_gap_after_it_and_no_more_than_it_blocked(tmp_path: Path) -> None:
    facts = waiting(tmp_path, ("kernel", 8_000.0), ("wait", 3.0), ("python", 1_000.0))
    assert idle_ms(facts, "host_sync") == pytest.approx(3.0, rel=0.05)
    # Without a wait of 1 ms the host would have come 1 ms earlier to what takes it 50.
    facts = waiting(tmp_path, ("kernel", 1_000.0), ("wait", 3.0), ("python", 50_000.0))
    assert idle_ms(facts, "host_sync") == pytest.approx(3.0, rel=0.05)
    assert idle_ms(facts, "host_launch") == pytest.approx(3 * 49.0, rel=0.05)
    # The wait is the profiler's own.
    facts = waiting(tmp_path, ("kernel", 5.0), ("python", 100.0), ("wait", 2_000.0), ("python", 30_000.0))
    assert idle_ms(facts, "host_sync") == 0.0 and idle_ms(facts, "other") == pytest.approx(6.0, rel=0.01)
    facts = waiting(tmp_path, ("kernel", 1_000.0), ("wait", 6_000.0), ("python", 300.0))
    assert idle_ms(facts, "other") == pytest.approx(15.0, rel=0.01)
    assert idle_ms(facts, "host_sync") == pytest.approx(0.9, rel=0.05)  # refilling the queue
