"""`--ranks`: some ranks trace, all are known by their timers, and nobody is accused for what an untraced rank does."""

from pathlib import Path

import pytest
from runs import Captured, forked, good_run

from ddprof.analyzers.engine import Options, analyze
from ddprof.report.model import Report

pytestmark = [pytest.mark.torch, pytest.mark.slow]


def sampled(tmp_path: Path, ranks: str, slow_rank: int) -> tuple[Captured, Report]:
    job = forked("planted.py", "--place", "pause", "--rank", str(slow_rank), ranks=4)
    run = good_run(tmp_path, job, "--ranks", ranks)
    assert run.manifest["ranks"] == [0, 1, 2, 3]
    (report,) = analyze([run.folder], Options(cache=False))
    return run, report


def test_a_slow_rank_outside_the_sample_is_named_by_its_timers_and_no_other_cause_is(tmp_path: Path) -> None:
    run, report = sampled(tmp_path, "sample:2", 1)
    assert sorted(run.traces) == [0, 3] and report.run.missing_ranks == (1, 2)
    times = run.manifest["step_times"]
    assert sorted(times) == ["0", "1", "2", "3"] and times["1"]["rest_ns"] > 90_000_000
    assert [f.id for f in report.findings if f.recoverable_us.value > 0.2 * report.steps.wall_us] == []
    assert "rank 1 was not traced" in report.verdict.headline
    assert any("ddprof run --ranks 0,1" in note.effect for note in report.health)


def test_a_slow_rank_in_the_list_is_the_finding(tmp_path: Path) -> None:
    run, report = sampled(tmp_path, "0,2", 2)
    assert sorted(run.traces) == [0, 2] and report.findings[0].ranks == (2,)
    assert report.findings[0].id == "straggler.host"
    assert not any("timers" in note.issue for note in report.health)
