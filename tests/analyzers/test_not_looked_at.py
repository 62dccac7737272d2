"""A rule that found nothing in a part of the job says what it could not look at."""

from labelled_runs import Runs, run_of

from ddprof.analyzers.catalogue import catalogue
from ddprof.analyzers.not_looked_at import left_out, unmatched_us
from ddprof.report.model import Report

TRAFFIC = ("comm.latency_bound", "comm.no_overlap", "comm.bandwidth_bound")
RANKS = ("straggler.compute", "straggler.imbalance", "straggler.unexplained")


def report_of(runs: Runs, name: str, *positions: int) -> Report:
    """The report on the run as if only these ranks had been traced."""
    return run_of([runs(name).job.ranks[p] for p in positions]).report


def test_traffic_without_a_traced_partner_is_not_judged(labelled: Runs) -> None:
    report = report_of(labelled, "straggler.compute", 0)  # it waits for another, which bytes do not explain
    reasons = {abstention.id: abstention.reason for abstention in report.abstentions}
    for rule_id in TRAFFIC:
        assert "the partner was not traced" in reasons[rule_id] and rule_id not in report.checked
    assert "report lacks, or waiting" in report.verdict.headline


def test_a_job_is_judged_where_it_was_seen_whole(labelled: Runs) -> None:
    reasons = {abstention.id: abstention.reason for abstention in report_of(labelled, "clean.ddp", 0, 1, 2).abstentions}
    for rule_id in RANKS:
        assert reasons[rule_id] == "compared 3 of 4 ranks: without rank 3"
    measures = labelled("clean.ddp").measures
    assert unmatched_us(measures) == 0.0
    assert [said for rule in catalogue().values() for said in left_out(rule, measures)] == []
    assert {*TRAFFIC, *RANKS} <= set(labelled("clean.ddp").report.checked)


def test_waiting_for_a_rank_that_is_not_in_the_report_is_no_plain_communication(labelled: Runs) -> None:
    """Without the slow one of four ranks its peers' waits and transfers cannot be told apart."""
    run = labelled("straggler.compute")
    (culprit,) = run.fault["culprit_ranks"]
    others = [p for p, rank in enumerate(run.job.rank_ids) if rank != culprit]
    said = report_of(labelled, "straggler.compute", *others).verdict.headline
    assert "with ranks that this report lacks, or waiting for them" in said, said
