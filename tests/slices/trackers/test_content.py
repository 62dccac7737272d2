"""The numbers and sentences that trackers are given."""

from dataclasses import replace

import pytest

from ddprof.capture.files.step import Step
from ddprof.capture.launcher.live import LiveRank
from ddprof.causes import CAUSES
from ddprof.report.model import Ledger, Report
from ddprof.slices.trackers.content import MOST_RANKS, Content, of_report, of_running, rank_steps

MS = 1_000_000


def test_the_verdict_of_a_run(content: Content) -> None:
    numbers = content.numbers
    assert numbers["ddprof/step_ms"] == 100
    assert sum(numbers[f"ddprof/share/{cause}"] for cause in CAUSES) == pytest.approx(1.0)
    assert numbers["ddprof/share/dataloader"] == pytest.approx(0.095)
    assert [numbers[f"ddprof/rank/{rank}/step_ms"] for rank in range(4)] == [100] * 4
    assert numbers["ddprof/finding/input.straggler/recoverable_ms"] == 36
    assert content.words["ddprof/bound"] == "straggler" and "loader of rank 2" in content.words["ddprof/verdict"]
    assert content.words["ddprof/findings"] == "input.straggler, comm.bandwidth_bound"
    assert content.words["ddprof/run"] == "/runs/mnist" and "| where the step goes |" in content.markdown


def test_what_was_not_measured_is_not_said(straggler_report: Report) -> None:
    for value in (None, float("nan")):
        assert "ddprof/mfu" not in of_report(replace(straggler_report, efficiency={"mfu": value}), None).numbers
    assert of_report(replace(straggler_report, efficiency={"mfu": 0.4}), None).numbers["ddprof/mfu"] == 0.4
    steps = replace(straggler_report.steps, count=0, wall_us=float("nan"))
    empty = replace(straggler_report, steps=steps, ledger=Ledger(), findings=())
    assert of_report(empty, None).numbers == {} and of_running([]) == Content()


def test_more_ranks_than_a_person_looks_at_are_told_by_their_extremes() -> None:
    steps_ms = {rank: 100.0 + rank for rank in range(MOST_RANKS)}
    assert len(rank_steps("x", steps_ms)) == MOST_RANKS
    wanted = {"x/fastest_rank": 99.0, "x/fastest_rank_step_ms": 50.0}
    wanted |= {"x/slowest_rank": 100.0, "x/slowest_rank_step_ms": 400.0}
    assert rank_steps("x", {**steps_ms, 99: 50.0, 100: 400.0}) == wanted


def live(rank: int, step_ms: int, data_ms: int) -> LiveRank:
    starts = enumerate(range(0, 5_000 * MS, 1_000 * MS))
    steps = (Step(n, at, at + step_ms * MS, data_ms * MS, MS, 0, 0, 0, 0, 0, 0, 0, 0, False) for n, at in starts)
    return LiveRank(rank, "h", tuple(steps), 5, 0)


def test_a_running_job_is_told_by_its_step_timers() -> None:
    told = of_running([live(0, 100, 1), live(1, 100, 41)])
    assert told.numbers["ddprof/live/step_ms"] == 100 and told.numbers["ddprof/live/rank/1/step_ms"] == 100
    assert (told.numbers["ddprof/live/late_rank"], told.numbers["ddprof/live/late_ms"]) == (1, 40)
    assert told.words["ddprof/live/late"] == "rank 1 is late by 40.0 ms per step, in data"
    even = of_running([live(0, 100, 1), live(1, 100, 1)])
    assert "ddprof/live/late_rank" not in even.numbers and even.words["ddprof/live/late"] == "none"
