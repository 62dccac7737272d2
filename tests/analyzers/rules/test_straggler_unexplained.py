"""Waiting that no other finding explains is named: who, how often, and what they did meanwhile."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from kineto_run import Script, in_step, loaded, meet
from labelled_runs import candidate, run_of

from ddprof.analyzers.engine import LoadedRun
from ddprof.analyzers.facts.kernels import with_steps
from ddprof.analyzers.rules.straggler_unexplained import detect_rest
from ddprof.findings import Abstention

ID = "straggler.unexplained"


def run(folder: Path, late: Callable[[int], int], ranks: int = 4, by_us: float = 2_000.0) -> LoadedRun:
    """Ranks that compute alike; in each step the device of one (`late`: step -> rank) copies for `by_us` longer."""

    def work(script: Script, rank: int, step: int) -> None:
        script.launch(dur_us=300.0, times=20)
        script.copy(1_000, by_us if rank == late(step) else 10.0)

    return loaded(in_step(ranks, 8, work), folder)


def test_names_the_rank_that_is_late_again_and_again_and_none_where_that_moves(tmp_path: Path) -> None:
    made = run(tmp_path, lambda step: 2)
    said = candidate(ID, made.measures)
    assert said.ranks == (2,) and "rank 2 is the latest in 8 of 8 steps" in said.summary
    assert "copying between host and device" in said.evidence[0].text
    assert made.pricer.gain_us(said) == pytest.approx(2_000.0, rel=0.1)
    assert [found.id for found in made.report.findings if 2 in found.ranks], made.report.findings
    said = candidate(ID, run(tmp_path, lambda step: step % 4).measures)
    assert said.ranks == () and "the slowest rank varies: 4 ranks" in said.summary
    made = run(tmp_path, lambda step: step % 4, by_us=450.0)
    assert 0.03 < candidate(ID, made.measures).lost_us / made.measures.step_us < 0.1
    assert made.pricer.gain_us(candidate(ID, made.measures)) == 0.0
    assert list(detect_rest(run(tmp_path, lambda step: 2, by_us=100.0).measures, ())) == []


def test_what_another_finding_names_or_covers_is_explained(tmp_path: Path) -> None:
    made = run(tmp_path, lambda step: 2)
    for rule_id, ranks, explains in (
        ("straggler.host", (2,), True),
        ("straggler.host", (1,), False),
        ("input.pageable_copy", (), True),
        ("host.gc", (), False),
    ):
        other = replace(candidate(ID, made.measures), id=rule_id, ranks=ranks)
        assert (list(detect_rest(made.measures, [other])) == []) == explains, other


def test_what_varies_beside_a_rank_that_a_finding_names_is_said_to_be_beside_it(tmp_path: Path) -> None:
    made = run(tmp_path, lambda step: 1 + step % 3, by_us=4_000.0)
    (alone,) = detect_rest(made.measures, ())
    (beside,) = detect_rest(made.measures, [replace(alone, id="straggler.compute", ranks=(1,))])
    assert alone.summary.startswith("the slowest rank varies: 3 ranks")
    assert beside.summary.startswith("apart from rank 1, the slowest rank varies: 2 ranks")


@pytest.mark.parametrize("ranks", [2, 4])
def test_what_the_others_wait_is_what_coming_on_time_wins(tmp_path: Path, ranks: int) -> None:
    (found,) = [f for f in run(tmp_path, lambda step: 1, ranks=ranks).report.findings if f.id == ID]
    assert found.recoverable_us.value == pytest.approx(1_990.0, rel=0.05)
    assert found.lost_us == pytest.approx(1_990.0 * (ranks - 1) / ranks, rel=0.05)  # the late rank waits for nobody


def test_ranks_that_are_late_in_turn_within_a_step_are_one_no_more_than_the_other(tmp_path: Path) -> None:
    """Each of two ranks is late at one of a step's two collectives: neither is the slowest, and both gain one wait."""
    scripts = [Script(), Script()]
    for step in range(8):
        begins_us = [script.now_us for script in scripts]
        for late in range(2):
            for rank, script in enumerate(scripts):
                script.launch(dur_us=300.0, times=20)
                script.copy(1_000, 2_000.0 + 40.0 * late if rank == late else 10.0)
            meet(scripts)
            for script in scripts:
                script.synchronise()
        for script, begin_us in zip(scripts, begins_us, strict=True):
            script.step(step + 1, begin_us)
    made = loaded(scripts, tmp_path)
    said = candidate(ID, made.measures)
    assert not said.ranks and said.summary.startswith("ranks wait for one another in turn")
    assert made.pricer.gain_us(said) == pytest.approx(2_000.0, rel=0.1)


def test_in_one_step_somebody_is_the_latest_and_nobody_is_named(tmp_path: Path) -> None:
    only = [with_steps(facts, np.array([2])) for facts in run(tmp_path, lambda step: 1).job.ranks]
    (said,) = detect_rest(run_of(only).measures, ())
    assert isinstance(said, Abstention) and "rank 1 is the latest in the only step" in said.reason
    unmarked = [replace(facts, step_source="inferred") for facts in only]
    assert not any(isinstance(said, Abstention) for said in detect_rest(run_of(unmarked).measures, ()))
