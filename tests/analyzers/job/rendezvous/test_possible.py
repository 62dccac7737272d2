"""Collectives that cannot be one operation are not matched: no wait, no clock, no comparison, and it is said."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from labelled_runs import Runs, only_run, run_of

from ddprof.analyzers.diagnose import diagnose
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.job.assemble import job_facts
from ddprof.analyzers.job.groups.groups import comm_group_ids
from ddprof.analyzers.job.matching import match
from ddprof.analyzers.job.rendezvous.possible import NOT_THE_SAME, disagreeing
from ddprof.tables import NULL


def odd(ranks: tuple[RankFacts, ...]) -> list[int]:
    return disagreeing(ranks, match(ranks, *comm_group_ids(ranks)))


def moved(facts: RankFacts, seed: int) -> RankFacts:
    """A rank whose collectives ran at other moments of its steps: those of another run, or others than its peers'."""
    by = np.random.default_rng(seed).integers(-8_000_000, 8_000_000, len(facts.comms))
    start, end = facts.comms.bounds
    comms = facts.comms.replace(start_ns=start + by, end_ns=end + by, seq=np.full(len(by), NULL, np.int64))
    return replace(facts, comms=comms, exposed=facts.exposed.take(np.arange(0)))


@pytest.mark.parametrize("name", ["clean.ddp", "clean.fsdp", "clean.tpdp", "clean.pp", "straggler.compute", "host.gc"])
def test_ranks_of_one_job_agree_whatever_their_clocks_say(labelled: Runs, name: str) -> None:
    assert odd(labelled(name).job.ranks) == []


def test_a_rank_that_disagrees_is_left_out_and_where_all_do_nothing_is_matched(labelled: Runs) -> None:
    ranks = labelled("clean.ddp").job.ranks
    changed = (ranks[0], moved(ranks[1], 3), *ranks[2:])
    assert odd(changed) == [1]
    job = job_facts(changed)
    assert (job.rank_ids, job.missing_ranks, job.not_compared) == ((0, 2, 3), (1,), "")
    assert any("the collectives of rank 1 are not those" in note.issue for note in job.health)
    loaded = run_of([moved(facts, seed) for seed, facts in enumerate(labelled("straggler.compute").job.ranks)])
    assert loaded.job.not_compared == NOT_THE_SAME
    assert set(loaded.job.instances["members"].tolist()) == {1} and not len(loaded.job.blame)
    assert [f.id for f in diagnose(loaded.measures, loaded.pricer).findings] == []
    assert loaded.report.ledger.job["comm_wait"] == 0.0 and loaded.report.ledger.job["host_launch"] == 0.0


def test_sampled_events_are_not_matched(shared_run: Callable[[str], Path]) -> None:
    report = only_run(shared_run("wild/recordings/sampled_events")).report
    assert report.ledger.job["comm_wait"] == 0.0 and not report.findings
    assert any(NOT_THE_SAME in item.issue and item.severity == "error" for item in report.health)
    assert [clock.error_us for clock in report.clock.hosts.values()] == [0.0, None]
