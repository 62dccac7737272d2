"""Facts of all ranks make one job, in whatever order the ranks come."""

from __future__ import annotations

from labelled_runs import Runs

from ddprof.analyzers.job.assemble import job_facts


def test_ranks_in_any_order_give_the_same_job(labelled: Runs) -> None:
    job = labelled("clean.tpdp").job
    turned = job_facts(job.ranks[::-1])
    assert turned.rank_ids == job.rank_ids
    assert turned.step_ns == job.step_ns
    assert turned.ledger["dur_ns"].tolist() == job.ledger["dur_ns"].tolist()
