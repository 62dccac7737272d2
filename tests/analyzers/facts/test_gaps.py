"""Exposed communication and gaps are whole, disjoint and where the trace says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from labelled_runs import Runs

from ddprof import intervals
from ddprof.analyzers.facts.gaps import busy, exposed_comm
from ddprof.analyzers.facts.model import COMMS, Work
from ddprof.tables import NULL, Table

NAMES = ("clean.ddp", "clean.fsdp", "clean.pp", "host.gc", "input.starved", "comm.slow_link")
SPANS = st.lists(st.tuples(st.integers(0, 80), st.integers(1, 20)), max_size=10)


def comms(spans: list[tuple[int, int]]) -> Table:
    """Communications of (start, duration), everything else missing."""
    missing = {c.name: np.full(len(spans), NULL if c.dtype == "int64" else 0) for c in COMMS.columns}
    start = np.array([s for s, _ in spans], np.int64)
    return COMMS.table({**missing, "start_ns": start, "end_ns": start + np.array([d for _, d in spans], np.int64)})


@given(SPANS, SPANS)
def test_exposed_is_communication_without_compute_once(
    moving: list[tuple[int, int]], working: list[tuple[int, int]]
) -> None:
    table = comms(moving)
    start = np.array([s for s, _ in working], np.int64)
    compute = intervals.union(start, start + np.array([d for _, d in working], np.int64))
    exposed = exposed_comm(table, compute)
    pieces = (exposed["start_ns"], exposed["end_ns"])
    expected = intervals.subtract(intervals.union(table["start_ns"], table["end_ns"]), compute)
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
        gaps = int((facts.gaps["end_ns"] - facts.gaps["start_ns"]).sum())
        assert compute + exposed + gaps == hi - lo
