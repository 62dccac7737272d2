"""Collectives without numbers are laid over one another by their ends; what cannot be one operation is not matched."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from labelled_runs import Runs, only_run, run_of

from ddprof.analyzers.diagnose import diagnose
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.names import OP_CODE
from ddprof.analyzers.job.assemble import NOT_THE_SAME, disagreeing, job_facts
from ddprof.analyzers.job.groups import comm_group_ids
from ddprof.analyzers.job.matching import match
from ddprof.analyzers.job.rendezvous.by_time import numbered_by_ends
from ddprof.tables import NULL, Array


def renumbered(ranks: tuple[RankFacts, ...]) -> tuple[RankFacts, ...]:
    return numbered_by_ends(ranks, comm_group_ids(ranks)[0])


def told(facts: RankFacts, keep: Array, clock_ns: int = 0) -> RankFacts:
    """A rank without sequence numbers that recorded these of its collectives, on a clock that is ahead."""
    comms = facts.comms.take(np.flatnonzero(keep))
    times = {name: comms[name] + clock_ns for name in ("start_ns", "end_ns")}
    return replace(facts, comms=comms.replace(**times, seq=np.full(len(comms), NULL, np.int64)))


@pytest.mark.parametrize("name", ["clean.ddp", "clean.fsdp", "straggler.compute", "host.gc"])
@pytest.mark.parametrize("lost", [0.01, 0.1])
def test_single_records_that_were_lost_move_nothing_behind_them(labelled: Runs, name: str, lost: float) -> None:
    rng = np.random.default_rng(5)
    ranks = labelled(name).job.ranks
    keeps = [rng.uniform(size=len(f.comms)) >= lost for f in ranks]
    keeps[2][4] = keeps[3][7] = keeps[3][9] = False
    clocks = [0, 3_000_000, -41_000_000, 7]
    found = renumbered(tuple(told(f, keep, clock) for f, keep, clock in zip(ranks, keeps, clocks, strict=True)))
    truth: dict[tuple[int, int], int] = {}
    for facts, keep, position in zip(found, keeps, range(4), strict=True):
        group = comm_group_ids(ranks)[0][position][keep]
        for true, seq, each in zip(ranks[position].comms["seq"][keep], facts.comms["seq"], group, strict=True):
            assert seq != NULL and truth.setdefault((int(each), int(true)), int(seq)) == seq


def test_equal_counts_odd_files_and_a_few_lost_collectives_leave_ranks_as_they_are(labelled: Runs) -> None:
    ranks = tuple(told(f, np.ones(len(f.comms), bool)) for f in labelled("clean.fsdp").job.ranks)
    assert all(a is b for a, b in zip(renumbered(ranks), ranks, strict=True))
    sent = [np.arange(len(f.comms)) + p for p, f in enumerate(ranks)]  # in an all-to-all each its own number of bytes
    op = OP_CODE["all_to_all"]
    uneven = [f.comms.replace(op=np.full(len(n), op), size_bytes=n) for f, n in zip(ranks, sent, strict=True)]
    uneven = tuple(replace(f, comms=comms) for f, comms in zip(ranks, uneven, strict=True))
    assert all(a is b for a, b in zip(renumbered(uneven), uneven, strict=True))
    rng = np.random.default_rng(2)
    ranks = [told(f, rng.uniform(size=len(f.comms)) < 0.9) for f in labelled("clean.fsdp").job.ranks]
    by = rng.integers(-20_000_000, 20_000_000, len(ranks[1].comms))
    ranks[1] = replace(ranks[1], comms=ranks[1].comms.replace(end_ns=ranks[1].comms["end_ns"] + by))
    assert all((f.comms["seq"] == NULL).all() for f in renumbered(tuple(ranks)))
    job = labelled("clean.fsdp").job
    ranks = [told(f, np.arange(len(f.comms)) != lost) for f, lost in zip(job.ranks, (4, 17, 99, 30), strict=True)]
    found = job_facts(ranks)
    assert (found.rank_ids, len(found.per_step_ns)) == (job.rank_ids, len(job.per_step_ns))
    assert np.allclose(found.per_step_ns, job.per_step_ns, rtol=0.001)


@pytest.mark.parametrize("lost", [[], [7]])
def test_members_that_leave_apart_are_one_instance_unless_records_were_lost(labelled: Runs, lost: list[int]) -> None:
    """Every third collective ends 1.5 ms later on rank 1: of a whole recording no other can be meant."""
    whole = labelled("clean.ddp").job.ranks[:2]
    kept = ~np.isin(np.arange(len(whole[1].comms)), lost)
    ranks = told(whole[0], np.ones(len(kept), bool)), told(whole[1], kept, 40_000_000)
    apart = np.arange(len(kept))[kept] % 3 == 0
    comms = ranks[1].comms.replace(end_ns=ranks[1].comms["end_ns"] + 1_500_000 * apart)
    first, second = renumbered((ranks[0], replace(ranks[1], comms=comms)))
    is_pair = first.comms["seq"][kept] == second.comms["seq"]
    assert is_pair.tolist() == (~apart | (not lost)).tolist()
    assert not (is_pair & (second.comms["seq"] == NULL)).any()
    assert np.isin(second.comms["seq"], first.comms["seq"]).tolist() == is_pair.tolist()


@pytest.mark.parametrize("seed", range(3))
def test_of_collectives_that_follow_closely_none_is_taken_for_the_next(labelled: Runs, seed: int) -> None:
    """Some end 0.3 ms later on rank 1, others of their kind come after 76 us."""
    ranks = [told(facts, np.ones(len(facts.comms), bool)) for facts in labelled("clean.fsdp").job.ranks[:2]]
    comms = ranks[1].comms
    late_ns = 300_000 * (np.random.default_rng(seed).uniform(size=len(comms)) < 0.3)
    ranks[1] = replace(ranks[1], comms=comms.replace(end_ns=comms["end_ns"] + late_ns))
    first, second = renumbered((ranks[0], ranks[1]))
    assert first.comms["seq"].tolist() == second.comms["seq"].tolist() == list(range(len(comms)))


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
    since = 180_000_000 * (np.arange(len(ranks[1].comms)) == len(ranks[1].comms) - 1)  # a clock that is set at last
    is_set = ranks[1].comms.replace(**{name: ranks[1].comms[name] + since for name in ("start_ns", "end_ns")})
    assert odd(changed) == odd((ranks[0], replace(ranks[1], comms=is_set), *ranks[2:])) == [1]
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
