"""The confidence of findings is counted, and said with what it was counted from."""

import ast
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from labelled_runs import Runs

from ddprof.analyzers import rules
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.model import HostClock, JobFacts
from ddprof.analyzers.trust.confidence import WORDS, confidence, doubts_of
from ddprof.analyzers.trust.precision import Precision, Tally
from ddprof.findings import Basis, Doubt
from ddprof.model import HealthNote

TABLE = Precision("", {}, {"host.gc": {"recorded": Tally(20, 19)}}, {"two_steps": Tally(9, 9)}, Tally(20, 19))


def test_it_is_the_measured_precision_and_each_doubt_lowers_it() -> None:
    sure = confidence("host.gc", Basis.RECORDED, (), TABLE)
    assert sure.value == pytest.approx(19 / 20, abs=0.03)
    assert sure.grounds == "such findings were right in 19 of 20 labelled runs (at least 78 %)"
    assert confidence("host.new", Basis.TIMED, (), TABLE).grounds == "never measured on labelled runs"
    doubted = confidence("host.gc", Basis.RECORDED, (Doubt.TWO_STEPS, Doubt.ONE_STEP, Doubt.MISSING_RANKS), TABLE)
    factor = TABLE.factor("one_step")  # under two steps nothing was wrong
    assert doubted.value == pytest.approx(sure.value * factor * factor)
    assert doubted.grounds.endswith("; thin recording: only two steps, only one step, ranks are missing")
    # Which of two gains is true says nothing of the cause: the range is widened (tests/analyzers/test_prices.py).
    assert confidence("host.gc", Basis.RECORDED, (Doubt.PRICES_DIFFER,), TABLE) == sure


def test_findings_say_what_they_stand_on_and_no_rule_states_a_number(labelled: Runs) -> None:
    for file in Path(rules.__file__).parent.rglob("*.py"):
        given = {node.arg for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.keyword)}
        assert "confidence" not in given, file
    for name in ("host.gc", "straggler.compute", "comm.no_overlap"):
        for finding in labelled(name).report.findings:
            assert finding.basis in {basis.value for basis in Basis} and finding.doubts == ()
            assert "labelled runs" in finding.grounds


def changed(measures: Measures, change: Callable[[JobFacts], JobFacts]) -> Measures:
    return replace(measures, job=change(measures.job))


def first_rank(job: JobFacts, **values: object) -> JobFacts:
    return replace(job, ranks=(replace(job.ranks[0], **values), *job.ranks[1:]))  # type: ignore[arg-type]


def unconnected(job: JobFacts) -> JobFacts:
    return replace(job, clock=replace(job.clock, domains=dict.fromkeys(job.clock.domains, HostClock(0, 0.0, None))))


def test_every_doubt_is_told_from_what_was_recorded_and_a_whole_recording_has_none(labelled: Runs) -> None:
    measures = labelled("host.gc").measures
    assert doubts_of(measures, 0.01) == ()
    broken = HealthNote("file: ends early", "events after that point are missing", "error")
    seen = {
        Doubt.ONE_STEP: doubts_of(replace(measures, steps=1), None),
        Doubt.TWO_STEPS: doubts_of(replace(measures, steps=2), None),
        Doubt.INFERRED_STEPS: doubts_of(changed(measures, lambda j: first_rank(j, step_source="inferred")), None),
        Doubt.MISSING_RANKS: doubts_of(changed(measures, lambda j: replace(j, missing_ranks=(9,))), None),
        Doubt.ASSUMED_CLOCK: doubts_of(changed(measures, unconnected), None),
        Doubt.DAMAGED_FILES: doubts_of(changed(measures, lambda j: first_rank(j, health=(broken,))), None),
        Doubt.REPLAY_ERROR: doubts_of(measures, 0.2),
    }
    of_findings = {Doubt.PRICES_DIFFER, Doubt.ONE_EVENT}  # test_prices.py, rules/evidence/test_occurrences.py
    assert seen == {doubt: (doubt,) for doubt in set(Doubt) - of_findings} and set(WORDS) == set(Doubt)
