"""The confidence of findings is counted, weighs few counts and doubts, and is said with what it was counted from."""

import ast
from dataclasses import replace
from pathlib import Path

import pytest
from labelled_runs import Runs

from ddprof.analyzers import rules
from ddprof.analyzers.catalogue import catalogue
from ddprof.analyzers.job.model import HostClock, JobFacts
from ddprof.analyzers.trust.confidence import NOTHING_KNOWN, WORDS, Precision, Tally, confidence, doubts_of, measured
from ddprof.findings import Basis, Doubt
from ddprof.model import HealthNote

TABLE = Precision("", {}, {"host.gc": {"recorded": Tally(20, 19)}}, {"two_steps": Tally(9, 9)}, Tally(20, 19))


def test_it_is_the_measured_precision_and_each_doubt_lowers_it() -> None:
    sure = confidence("host.gc", Basis.RECORDED, (), TABLE)
    assert sure.value == pytest.approx(19 / 20, abs=0.03)
    assert sure.grounds == "such findings were right in 19 of 20 labelled runs (at least 78 %)"
    assert confidence("host.new", Basis.TIMED, (), TABLE).grounds == "no labelled run had such a finding"
    doubted = confidence("host.gc", Basis.RECORDED, (Doubt.TWO_STEPS, Doubt.ONE_STEP, Doubt.MISSING_RANKS), TABLE)
    factor = TABLE.factor("one_step")  # under two steps nothing was wrong
    assert doubted.value == pytest.approx(sure.value * factor * factor)
    assert doubted.grounds.endswith("; thin recording: only two steps, only one step, ranks are missing")
    # Which of two gains is true says nothing of the cause: the range is widened (tests/analyzers/test_corpus.py).
    assert confidence("host.gc", Basis.RECORDED, (Doubt.PRICES_DIFFER,), TABLE) == sure


def test_findings_say_what_they_stand_on_and_no_rule_states_a_number(labelled: Runs) -> None:
    for file in Path(rules.__file__).parent.rglob("*.py"):
        given = {node.arg for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.keyword)}
        assert "confidence" not in given, file
    for name in ("host.gc", "straggler.compute", "comm.no_overlap"):
        for finding in labelled(name).report.findings:
            assert finding.basis in {basis.value for basis in Basis} and finding.doubts == ()
            assert "labelled runs" in finding.grounds


def first_rank(job: JobFacts, **values: object) -> JobFacts:
    return replace(job, ranks=(replace(job.ranks[0], **values), *job.ranks[1:]))  # type: ignore[arg-type]


def test_every_doubt_is_told_from_what_was_recorded_and_a_whole_recording_has_none(labelled: Runs) -> None:
    measures, job = labelled("host.gc").measures, labelled("host.gc").job
    assert doubts_of(measures, 0.01) == ()
    broken = HealthNote("file: ends early", "events after that point are missing", "error")
    unconnected = replace(job.clock, domains=dict.fromkeys(job.clock.domains, HostClock(0, 0.0, None)))
    recorded = {
        Doubt.ONE_STEP: replace(measures, steps=1),
        Doubt.TWO_STEPS: replace(measures, steps=2),
        Doubt.INFERRED_STEPS: replace(measures, job=first_rank(job, step_source="inferred")),
        Doubt.MISSING_RANKS: replace(measures, job=replace(job, missing_ranks=(9,))),
        Doubt.ASSUMED_CLOCK: replace(measures, job=replace(job, clock=unconnected)),
        Doubt.DAMAGED_FILES: replace(measures, job=first_rank(job, health=(broken,))),
    }
    seen = {doubt: doubts_of(told, None) for doubt, told in recorded.items()}
    seen[Doubt.REPLAY_ERROR] = doubts_of(measures, 0.2)
    of_findings = {Doubt.PRICES_DIFFER, Doubt.ONE_EVENT}  # test_corpus.py, rules/evidence/test_evidence.py
    assert seen == {doubt: (doubt,) for doubt in set(Doubt) - of_findings} and set(WORDS) == set(Doubt)


GC = {"recorded": Tally(30, 30), "timed": Tally(1, 0)}
RULES = {"host.gc": GC, "host.sync": {"recorded": Tally(4, 2)}, "straggler.host": {"untested": Tally(2, 0)}}
DOUBTS = {"one_step": Tally(8, 4), "damaged_files": Tally(40, 40)}
COUNTS = Precision("2026-11-23", {"corpus": 60}, RULES, DOUBTS, Tally(40, 38))


def test_few_counts_and_doubts_weigh_what_was_measured_of_them() -> None:
    assert Precision().of("host.gc", "recorded") == NOTHING_KNOWN
    assert COUNTS.of("host.gc", "recorded") == pytest.approx(30 / 30, abs=0.03)
    assert COUNTS.of("host.sync", "recorded") == pytest.approx(2 / 4, abs=0.1)
    # One finding, and it was wrong: not certainly wrong.
    assert 0 < COUNTS.of("host.gc", "timed") < COUNTS.of("host.gc", "recorded") / 2
    # An identifier that was never measured starts from what else stands on its basis, and from nothing known.
    assert COUNTS.of("comm.no_overlap", "untested") < NOTHING_KNOWN < COUNTS.of("comm.no_overlap", "recorded") < 0.8
    assert COUNTS.factor("one_step") == pytest.approx((4 / 8) / (38 / 40), abs=0.02)
    assert COUNTS.factor("damaged_files") == 1.0  # it took nothing
    assert COUNTS.factor("never seen") == pytest.approx(NOTHING_KNOWN / (38 / 40), abs=0.02)


def test_the_table_that_ships_was_measured_on_findings_that_exist() -> None:
    table = measured()
    assert sum(table.runs.values()) >= 100 and set(table.findings) <= set(catalogue())
    assert all(tally.right <= tally.said for row in table.findings.values() for tally in row.values())
