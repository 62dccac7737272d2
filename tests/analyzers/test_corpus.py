"""The whole chain on runs whose truth is known: right causes and ranks, nobody accused falsely, true prices."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from corpus import CLEAN, EVERY, FAULTY, HARD, JUDGED, PRICED, WHOLE
from labelled_runs import Runs, drawn, serious

from benchmarks.oracle import kinds
from benchmarks.scoring.score import Score, score
from ddprof.analyzers.diagnose import diagnose
from ddprof.analyzers.facts.early import is_early
from ddprof.findings import Basis, Candidate, Change, Doubt, Finding, Rule

MAX_REPLAY_ERROR = MAX_LEDGER_ERROR = 1e-3  # of wall time; of the ledger the mean over causes
MAX_STEP_ERROR = 0.02  # predicted step without the fault against the simulated one
# What the replay cannot know from the trace, only bound: how fast another precision or a fused optimizer would be, what
# more microbatches win, what a copy or link would do at its best.
BOUNDED = {"compute.precision": 0.30, "compute.unfused_optimizer": 0.06, "pipeline.bubble": 0.12}
BOUNDED |= {"input.pageable_copy": 0.12, "comm.slow_link": 0.55}


@pytest.mark.parametrize("name", list(FAULTY))
def test_the_fault_is_found_with_its_ranks_and_the_step_without_it(labelled: Runs, name: str) -> None:
    run = labelled(name)
    said = [(f.id, f.ranks) for f in run.report.findings]
    assert (run.score.faults, run.score.found, run.score.false) == ((name,), (True,), ()), said
    headline = run.report.verdict.headline
    assert run.score.bound_right and "fixing it saves" in headline, headline
    assert not headline[0].islower() or "_" in headline.split()[0], headline  # the name of an operation stays as it is
    assert run.score.step_error is not None and run.score.step_error < BOUNDED.get(name, MAX_STEP_ERROR)


@pytest.mark.parametrize("name", [*CLEAN, *HARD])
def test_nobody_is_accused_and_faults_are_found_where_the_trace_says_little(labelled: Runs, name: str) -> None:
    run = labelled(name)
    assert all(run.score.found) and run.score.false == (), [(f.id, f.ranks) for f in run.report.findings]


@pytest.mark.parametrize("name", list(WHOLE))
def test_ledger_and_unmodified_replay_agree_with_the_truth(labelled: Runs, name: str) -> None:
    run = labelled(name)
    assert run.score.ledger_error is not None and run.score.ledger_error < MAX_LEDGER_ERROR, run.score.worst_cause
    for rank, row in run.report.ledger.per_rank.items():
        causes = sum(value for cause, value in row.items() if cause != "wall_us")
        assert causes == pytest.approx(row["wall_us"], rel=1e-9), rank
    assert run.report.replay.error is not None and run.report.replay.error < MAX_REPLAY_ERROR


def test_the_score_of_the_whole_corpus(labelled: Runs) -> None:
    summary = Score(tuple(labelled(name).score for name in JUDGED)).summary()
    assert summary["faults_right"] >= 0.95 and summary["healthy_accused"] == 0
    assert summary["clock_inside"] == 1.0 and summary["bound_right"] >= 0.95


def test_hand_made_samples_are_all_right(shared_dir: Path) -> None:
    runs = tuple(score(shared_dir / "oracle_samples"))
    assert len(runs) == 10 and [run.name for run in runs if not run.right] == []
    assert max(run.replay_error or 0.0 for run in runs) < MAX_REPLAY_ERROR
    assert float(np.median([run.step_error for run in runs if run.step_error is not None])) < 0.03


AHEAD = ("straggler.compute", "pipeline.imbalance", "comm.latency_bound")


@pytest.mark.parametrize(
    ("drawn_by", "kind"),
    [
        *(("corpus", kind) for kind in (*AHEAD, "clean.ddp")),
        *(pytest.param("kinds", kind, marks=pytest.mark.slow) for kind in (*AHEAD, "clean.plain")),
    ],
)
def test_jobs_that_run_ahead_of_their_device_are_judged_like_others(drawn_by: str, kind: str, tmp_path: Path) -> None:
    """A run of the corpus whose script never waits for the device, or one of the kinds of the oracle."""
    if drawn_by == "corpus":
        scenario = replace(EVERY[kind], steps=4, model=replace(EVERY[kind].model, sync="none"))
    else:
        scenario = kinds.scenario(161_100, kind, run_ahead=True)
    run = drawn(scenario, tmp_path)
    assert any(is_early(facts.device_ops).any() for facts in run.job.ranks)
    score = run.score
    assert score.right and score.bound_right, score
    assert score.replay_error is not None and score.replay_error < 0.005, score
    assert score.ledger_error is not None and score.ledger_error < 0.01, score


@pytest.mark.parametrize("name", [*CLEAN, *FAULTY])
def test_no_finding_gains_more_than_is_booked_or_less(labelled: Runs, name: str) -> None:
    report = labelled(name).report
    assert {f.id for f in report.findings if Doubt.PRICES_DIFFER.value in f.doubts} & serious(report).keys() == set()


def test_where_two_prices_differ_the_range_says_so_alone(labelled: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow device of which a rule claims a tenth: its range reaches what the ledger books."""
    run = labelled("straggler.compute")
    slow = Candidate("straggler.compute", "", 0.0, Basis.COMPARED, (2,), (Change("scale_compute", (2,), (1.3,)),))

    def priced(candidate: Candidate) -> Finding:
        rule = Rule(slow.id, slow.id, lambda _: iter([candidate]))
        monkeypatch.setattr("ddprof.analyzers.diagnose.catalogue", lambda: {rule.id: rule})
        (finding,) = diagnose(run.measures, run.pricer).findings
        return finding

    whole = priced(slow)
    tenth = priced(replace(slow, ceiling_us=whole.recoverable_us.value / 10))
    assert whole.doubts == () and tenth.doubts == (Doubt.PRICES_DIFFER.value,)
    assert tenth.recoverable_us.value == pytest.approx(whole.recoverable_us.value / 10)
    assert whole.by_ledger_us is not None and tenth.by_ledger_us == whole.by_ledger_us
    assert tenth.recoverable_us.high == pytest.approx(whole.by_ledger_us.value)
    assert tenth.confidence == whole.confidence and tenth.grounds == whole.grounds


@pytest.mark.parametrize("name", PRICED)
def test_every_fault_of_a_run_has_its_true_price(labelled: Runs, name: str) -> None:
    """Saving is no part of what reading values costs; what others wait for the launches of a late host is."""
    run = labelled(name)
    gains_us = {finding.id: finding.recoverable_us.value for finding in run.report.findings}
    for fault in run.label["faults"]:
        low_us, high_us = fault["recoverable_range_us"]
        assert low_us - 0.03 * run.label["step_us"] <= gains_us[fault["id"]] <= high_us + 0.03 * run.label["step_us"]
