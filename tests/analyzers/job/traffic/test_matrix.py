"""Who communicates with whom: matrices that sum to the ledger and to the messages, and invent no pairs."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from labelled_runs import Runs, run_of, sample_run

from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.job.model import JobFacts
from ddprof.analyzers.job.traffic.matrix import OUTSIDE, Pairs, pairs_of
from ddprof.causes import CAUSE_CODE
from ddprof.tables import NULL


def ranks_of(job: JobFacts) -> Pairs:
    return pairs_of(job, np.arange(len(job.ranks)), len(job.ranks))


@pytest.mark.parametrize("sample", ["slow_gpu", "slow_stage", "sharding", "late_loader"])
def test_a_line_sums_to_the_waiting_of_that_rank_in_the_ledger(sample: str) -> None:
    job = sample_run(sample).job
    assert not (job.blame["culprit"] == NULL).any()  # every rank was traced
    waits = ranks_of(job).waits_us
    mine = job.ledger.take(np.isin(job.ledger["cause"], [CAUSE_CODE["comm_wait"], CAUSE_CODE["pipeline_bubble"]]))
    booked_us = np.bincount(mine["rank"], mine["dur_ns"] / 1e3, len(job.ranks)) / len(job.per_step_ns)
    assert waits.sum(axis=1) == pytest.approx(booked_us, rel=1e-3, abs=1.0) and not np.diagonal(waits).any()


def test_ranks_share_their_groups_collectives_and_hosts_are_sums_of_their_ranks() -> None:
    job = sample_run("slow_gpu").job
    by_rank = ranks_of(job).waits_us
    assert by_rank.sum(axis=0).argmax() == 2
    shared = ranks_of(job).shared_bytes
    assert np.isnan(np.diagonal(shared)).all()
    known = job.instances["size_bytes"][(job.instances["size_bytes"] != NULL) & (job.instances["members"] == 4)]
    off = shared[~np.eye(len(shared), dtype=bool)]
    assert (off == off[0]).all()  # one group of all
    assert 0 < off[0] * len(job.per_step_ns) <= known.sum()
    assert pairs_of(job, np.array([0, 0, 1, 1]), 2).waits_us[0, 1] == pytest.approx(by_rank[:2, 2:].sum() / 2)
    some = pairs_of(job, np.array([0, OUTSIDE, 1, OUTSIDE]), 2)
    assert some.waits_us[0, 1] == pytest.approx(by_rank[0, 2])
    assert np.isnan(np.diagonal(some.shared_bytes)).all()


def test_stages_send_to_their_neighbours_alone() -> None:
    job = sample_run("bubble").job
    assert job.pipeline is not None
    found = {(int(a), int(b)) for a, b in np.argwhere(np.isfinite(ranks_of(job).sent_bytes))}
    chains = zip(*job.pipeline.stages, strict=True)
    wanted = {pair for chain in chains for a, b in itertools.pairwise(chain) for pair in ((a, b), (b, a))}
    assert found == wanted
    rate = ranks_of(job).rate_gbps
    assert np.isfinite(rate[sorted(wanted)[0]]) and rate == pytest.approx(rate.T, nan_ok=True)


def test_a_peer_that_is_numbered_within_its_group_is_the_rank_it_stands_for(labelled: Runs) -> None:
    told = labelled("slow host of a whole stage").job
    assert {group.ranks for facts in told.ranks for group in facts.process_groups} >= {(0, 2), (1, 3)}

    def within_group(facts: RankFacts) -> RankFacts:
        ranks = [facts.process_groups[group].ranks for group in facts.messages["group"].tolist()]
        places = [of.index(peer) for of, peer in zip(ranks, facts.messages["peer"].tolist(), strict=True)]
        return replace(facts, messages=facts.messages.replace(peer=np.array(places)))

    relative = run_of([within_group(facts) for facts in told.ranks]).job
    assert np.isfinite(ranks_of(told).sent_bytes[[0, 1, 2, 3], [2, 3, 0, 1]]).all()
    assert ranks_of(relative).sent_bytes == pytest.approx(ranks_of(told).sent_bytes, nan_ok=True)
