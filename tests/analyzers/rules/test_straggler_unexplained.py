"""Waiting that no other finding explains is named: who, how often, and what they did meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from kineto_run import Script, meet
from labelled_runs import Runs, abstains

from ddprof.analyzers.engine import LoadedRun
from ddprof.analyzers.job.assemble import job_facts
from ddprof.analyzers.rules.straggler_unexplained import detect, detect_rest
from ddprof.findings import Candidate

ID = "straggler.unexplained"
Late = Callable[[int], int]


def run(folder: Path, late: Late, ranks: int = 4, steps: int = 8, by_us: float = 2_000.0) -> LoadedRun:
    """Ranks that compute alike; in each step the device of one (`late`: step -> rank) copies for `by_us` longer."""
    scripts = [Script() for _ in range(ranks)]
    for step in range(steps):
        begins = [script.now_us for script in scripts]
        for number, script in enumerate(scripts):
            for _ in range(20):
                script.launch(dur_us=300.0)
            script.copy(1_000, by_us if number == late(step) else 10.0)
        meet(scripts)
        for script, begin in zip(scripts, begins, strict=True):
            script.synchronise()
            script.step(step + 1, begin)
    return LoadedRun("made", job_facts([s.facts(folder, n, ranks) for n, s in enumerate(scripts)]), ())


def finding(made: LoadedRun) -> Candidate:
    (only,) = detect(made.measures)
    assert isinstance(only, Candidate), only
    return only


def test_names_the_rank_that_is_late_again_and_again(tmp_path: Path) -> None:
    made = run(tmp_path, lambda step: 2)
    said = finding(made)
    assert said.ranks == (2,)
    assert "rank 2 is the latest in 8 of 8 steps" in said.summary
    assert "copying between host and device" in said.evidence[0].text
    assert made.pricer.gain_us(said) == pytest.approx(2_000.0, rel=0.1)


def test_lateness_that_moves_is_nobodys(tmp_path: Path) -> None:
    said = finding(run(tmp_path, lambda step: step % 4))
    assert said.ranks == ()
    assert "4 ranks take turns" in said.summary


def test_a_little_that_moves_has_no_price(tmp_path: Path) -> None:
    made = run(tmp_path, lambda step: step % 4, by_us=450.0)
    assert 0.03 < finding(made).lost_us / made.measures.step_us < 0.1
    assert made.pricer.gain_us(finding(made)) == 0.0


def test_little_waiting_needs_no_name(tmp_path: Path) -> None:
    assert list(detect(run(tmp_path, lambda step: 2, by_us=100.0).measures)) == []


def test_what_another_finding_names_is_explained(tmp_path: Path) -> None:
    made = run(tmp_path, lambda step: 2)
    other = replace(finding(made), id="straggler.host")
    assert list(detect_rest(made.measures, [other])) == []
    assert list(detect_rest(made.measures, [replace(other, ranks=(1,))])) != []


def test_a_finding_of_the_whole_job_explains_what_it_covers(tmp_path: Path) -> None:
    made = run(tmp_path, lambda step: 2)
    job_wide = replace(finding(made), ranks=())
    assert list(detect_rest(made.measures, [replace(job_wide, id="input.pageable_copy")])) == []
    assert list(detect_rest(made.measures, [replace(job_wide, id="host.gc")])) != []


def test_the_report_has_it(tmp_path: Path) -> None:
    report = run(tmp_path, lambda step: 2).report
    named = [found.id for found in report.findings if 2 in found.ranks]
    assert named, report.findings


def test_abstains_with_one_rank(labelled: Runs) -> None:
    assert "only one rank" in abstains(ID, labelled("straggler.compute").only(0))


@pytest.mark.parametrize("name", ["clean.ddp", "clean.fsdp", "clean.tpdp", "clean.pp"])
def test_is_silent_on_a_healthy_run(labelled: Runs, name: str) -> None:
    assert labelled(name).said(ID) == []


@pytest.mark.parametrize("ranks", [2, 4])
def test_what_the_others_wait_is_what_coming_on_time_wins(tmp_path: Path, ranks: int) -> None:
    made = run(tmp_path, lambda step: 1, ranks=ranks)
    (found,) = [f for f in made.report.findings if f.id == ID]
    assert found.recoverable_us.value == pytest.approx(1_990.0, rel=0.05)
    assert found.lost_us == pytest.approx(1_990.0 * (ranks - 1) / ranks, rel=0.05)  # the late rank waits for nobody
