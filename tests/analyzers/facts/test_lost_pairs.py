"""Calls that are lost together with their kernels are told by equal operators that launch now and then."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from labelled_runs import Runs

from ddprof.analyzers.facts.extract import rank_facts
from ddprof.analyzers.facts.lost_pairs import lost_pairs_note
from ddprof.analyzers.facts.stepping.steps import find_steps
from ddprof.causes import CAUSE_CODE
from ddprof.model import Kind, RankTrace
from ddprof.tables import Array

SHARE = 0.2


@pytest.fixture(scope="module")
def trace(labelled: Runs) -> RankTrace:
    """One healthy rank, whose steps are all of one program."""
    return next(labelled("straggler.imbalance").recorded())


def without(trace: RankTrace, is_lost: Callable[[Array, Array], Array]) -> RankTrace:
    """The trace without the launches that `is_lost` says of their correlations and steps, and what they launched."""
    events, starts = trace.events, find_steps(trace)[0]["start_ns"]
    launched = events["correlation"][events["kind"] == Kind.KERNEL]
    rows = np.flatnonzero((events["kind"] == Kind.RUNTIME) & np.isin(events["correlation"], launched))
    step = np.searchsorted(starts, events["ts_ns"][rows], side="right") - 1
    gone = np.isin(events["correlation"], events["correlation"][rows][is_lost(events["correlation"][rows], step)])
    return replace(trace, events=events.replace(kind=np.where(gone, Kind.OTHER, events["kind"])))


def test_losses_of_both_halves_are_said_and_blame_nobody(trace: RankTrace) -> None:
    draw = np.random.default_rng(3)
    facts = rank_facts(without(trace, lambda calls, _: draw.random(len(calls)) < SHARE))
    assert [note for note in facts.health if "launch work did so in one step only" in note.issue]
    assert not facts.counts["whole"] and set(facts.gaps["cause"].tolist()) == {CAUSE_CODE["unknown"]}


@pytest.mark.parametrize(
    "is_lost",
    [lambda calls, step: step < 0, lambda calls, step: (step == 1) & (calls % 4 == 0)],
    ids=["nothing is lost", "one step launches less than the others"],
)
def test_a_program_that_launches_more_once_is_whole(trace: RankTrace, is_lost: Callable[[Array, Array], Array]) -> None:
    other = without(trace, is_lost)
    assert lost_pairs_note(other, find_steps(other)[0]) == []


def test_a_trace_without_a_step_has_no_pairs(trace: RankTrace) -> None:
    assert lost_pairs_note(trace, find_steps(trace)[0].take(np.empty(0, np.int64))) == []


def test_records_lost_one_by_one_leave_their_other_half(trace: RankTrace) -> None:
    kinds = trace.events["kind"]
    gone = np.isin(kinds, (Kind.KERNEL, Kind.RUNTIME)) & (np.random.default_rng(3).random(len(kinds)) < SHARE / 4)
    other = replace(trace, events=trace.events.replace(kind=np.where(gone, Kind.OTHER, kinds)))
    assert lost_pairs_note(other, find_steps(other)[0]) == []
