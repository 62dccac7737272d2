"""Steps of the timeline: the job's own, and numbers of a folded step hold only what lies in it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ddprof.causes import CAUSES
from ddprof.dashboard.exhibits.timeline import configuration
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.dashboard.runs.view import View
from ddprof.dashboard.timeline.selection import selection_statistics
from ddprof.dashboard.timeline.steps import one_step, step_count


def test_a_step_is_where_each_rank_has_it(straggler: OpenRun) -> None:
    job, steps = straggler.job, straggler.timeline.steps
    assert step_count(steps) == straggler.step_count > 1
    told = one_step(steps, 1)
    assert told["number"] == 1 and told["words"].startswith("step 1")
    for position, (rank, lo_us, hi_us) in enumerate(told["ranks"]):
        table = job.ranks[position].steps
        shift = job.shift_ns(position)
        assert rank == job.rank_ids[position]
        assert (lo_us, hi_us) == ((table["start_ns"][1] - shift) / 1e3, (table["end_ns"][1] - shift) / 1e3)


def test_ranks_without_the_step_are_left_out(straggler: OpenRun) -> None:
    first, *others = straggler.timeline.steps
    cut = replace(first, marked=first.marked[:1], start_ns=first.start_ns[:1], end_ns=first.end_ns[:1])
    assert step_count((cut, *others)) == 1
    assert [rank for rank, _, _ in one_step((cut, *others), 1)["ranks"]] == [of.rank for of in others]


def test_numbers_of_a_folded_step_are_those_of_the_ledger(straggler: OpenRun) -> None:
    """A window beyond the step's ends is cut to the step: its causes are what the ledger books to it."""
    timeline, job = straggler.timeline, straggler.job
    causes = [i for i, lane in enumerate(timeline.lanes) if lane.kind == "causes"]
    by_cause = {
        (timeline.lanes[lane].rank, row["cause"]): row["total_ns"]
        for lane in causes
        for row in selection_statistics(timeline, [lane], -(10**9), 10**12, step=1)["causes"]
    }
    ledger, codes = job.ledger, list(CAUSES.values())
    booked = {
        (job.rank_ids[int(rank)], codes[int(cause)].label): int(ns)
        for rank, step, cause, ns in zip(*(ledger[c] for c in ("rank", "step", "cause", "dur_ns")), strict=True)
        if step == 1 and ns
    }
    assert by_cause == booked


def test_names_of_a_folded_range_are_cut_to_it(straggler: OpenRun) -> None:
    timeline = straggler.timeline
    lanes = [i for i, lane in enumerate(timeline.lanes) if lane.kind == "stream"]
    span = min(int((of.end_ns - of.start_ns)[1]) for of in timeline.steps)
    half, whole = (
        [row for row in selection_statistics(timeline, lanes, 0, until, step=1)["names"] if row["calls"]]
        for until in (span // 2, 10**12)
    )
    assert sum(row["total_ns"] for row in half) <= len(lanes) * (span // 2)
    assert 0 < sum(row["total_ns"] for row in half) < sum(row["total_ns"] for row in whole)
    nothing = selection_statistics(timeline, lanes, 0, 10**6, step=straggler.step_count + 5)
    assert nothing["causes"] == [] and nothing["names"] == [] and len(timeline.steps) > 1


def test_the_address_names_the_step(straggler: OpenRun) -> None:
    def told(query: dict[str, str]) -> tuple[object, object]:
        found = configuration(View(straggler, query, (straggler,)))
        return found["step"], found["fold"]

    assert told({"step": "1", "fold": "1"}) == (1, True)
    assert told({"step": "99999"}) == (None, False)
    for wrong in ("-1", "x", "١", "1" * 30):
        assert told({"step": wrong}) == (None, False)


def test_the_filter_of_steps_shows_them_on_all_ranks(straggler: OpenRun) -> None:
    found = configuration(View(straggler, {"steps": "1"}, (straggler,)))
    spans = np.array([span[1:] for span in one_step(straggler.timeline.steps, 1)["ranks"]])
    assert (found["from_us"], found["to_us"]) == (spans[:, 0].min(), spans[:, 1].max())
