"""What is known once all ranks lie side by side: matching, clocks, waits, blame, ledger, stages."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from corpus import SCENARIOS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from labelled_runs import Runs

from benchmarks.oracle.small_runs import HOST_OFFSET_US
from ddprof.analyzers.facts.model import CAUSE, CAUSES, RankFacts
from ddprof.analyzers.job.assemble import job_facts
from ddprof.analyzers.job.model import JobFacts
from ddprof.tables import NULL

NAMES = ("clean.ddp", "clean.fsdp", "clean.tpdp", "clean.pp", "straggler.compute", "input.straggler", "comm.slow_link")


def shifted(facts: RankFacts, by_ns: int) -> RankFacts:
    """The same rank on a clock that is ahead by `by_ns`."""
    names = ("steps", "device_ops", "comms", "exposed", "gaps", "host_spans", "phases", "stream_waits", "host_work")
    tables = {}
    for name in names:
        table = getattr(facts, name)
        times = [c.name for c in table.schema.columns if c.name.endswith("_ns")]
        tables[name] = table.replace(**{t: np.where(table[t] == NULL, NULL, table[t] + by_ns) for t in times})
    return replace(facts, **tables)


def without_seq(facts: RankFacts) -> RankFacts:
    """The same rank as an older profiler writes it: no sequence numbers."""
    return replace(facts, comms=facts.comms.replace(seq=np.full(len(facts.comms), NULL)))


def memberships(job: JobFacts) -> set[frozenset[tuple[int, int]]]:
    """Instances as sets of (rank position, row of its comms)."""
    found: dict[int, set[tuple[int, int]]] = {}
    columns = (job.members[name].tolist() for name in ("instance", "rank", "comm"))
    for instance, rank, comm in zip(*columns, strict=True):
        found.setdefault(instance, set()).add((rank, comm))
    return {frozenset(group) for group in found.values()}


@pytest.mark.parametrize("name", NAMES)
def test_every_member_of_every_operation_is_matched(labelled: Runs, name: str) -> None:
    job = labelled(name).job
    assert len(job.instances) and job.instances["complete"].all()
    pairs = np.stack((job.members["instance"], job.members["rank"], job.members["comm"]))
    assert np.unique(pairs, axis=1).shape[1] == pairs.shape[1]
    matched = {(int(r), int(c)) for r, c in zip(job.members["rank"], job.members["comm"], strict=True)}
    everything = {(p, row) for p, facts in enumerate(job.ranks) for row in range(len(facts.comms))}
    assert matched == everything


@pytest.mark.parametrize("name", ["clean.ddp", "clean.fsdp", "clean.tpdp"])
def test_order_matches_as_sequence_numbers_do(labelled: Runs, name: str) -> None:
    job = labelled(name).job
    assert memberships(job_facts([without_seq(facts) for facts in job.ranks])) == memberships(job)


def test_messages_join_two_neighbouring_stages(labelled: Runs) -> None:
    job = labelled("clean.pp").job
    messages = np.flatnonzero(job.instances["is_message"])
    assert len(messages)
    assert (job.instances["members"][messages] == 2).all()
    assert job.pipeline is not None
    assert job.pipeline.stages == ((0,), (1,))
    assert job.pipeline.microbatches == SCENARIOS["clean.pp"].parallel.microbatches


def test_ranks_in_any_order_give_the_same_job(labelled: Runs) -> None:
    job = labelled("clean.tpdp").job
    turned = job_facts(job.ranks[::-1])
    assert turned.rank_ids == job.rank_ids
    assert turned.step_ns == job.step_ns
    assert turned.ledger["dur_ns"].tolist() == job.ledger["dur_ns"].tolist()


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(extra_us=st.floats(-2e6, 2e6))
def test_a_skewed_host_is_found_within_the_stated_error(labelled: Runs, extra_us: float) -> None:
    job = labelled("clean.tpdp").job
    by_ns = round(extra_us * 1e3)
    moved = [shifted(f, by_ns) if f.identity.host == "node01" else f for f in job.ranks]
    clock = job_facts(moved).clock.domains["node01"]
    assert clock.error_ns is not None and clock.error_ns < 100_000
    assert abs(clock.offset_ns - (HOST_OFFSET_US * 1e3 + by_ns)) <= clock.error_ns + 1


def test_a_skewed_clock_changes_no_wait(labelled: Runs) -> None:
    """Waits of collectives need no clock at all: a host a second ahead books the same ledger."""
    job = labelled("clean.tpdp").job
    moved = job_facts([shifted(f, 10**9) if f.identity.host == "node01" else f for f in job.ranks])
    assert moved.ledger["dur_ns"].tolist() == job.ledger["dur_ns"].tolist()


@pytest.mark.parametrize("name", NAMES)
def test_waits_end_when_the_last_member_arrives(labelled: Runs, name: str) -> None:
    job = labelled(name).job
    members = job.members
    assert (members["start_ns"] <= members["ready_ns"]).all()
    assert (members["ready_ns"] <= members["end_ns"]).all()
    least = np.full(len(job.instances), np.iinfo(np.int64).max)
    np.minimum.at(least, members["instance"], members["end_ns"] - members["ready_ns"])
    assert (least == job.instances["transfer_ns"]).all()
    shortest_wait = np.full(len(job.instances), np.iinfo(np.int64).max)
    np.minimum.at(shortest_wait, members["instance"], members["ready_ns"] - members["start_ns"])
    assert (shortest_wait == 0).all()  # whoever came last waits for nobody


def test_the_slow_rank_comes_last_and_shows_the_short_kernel(labelled: Runs) -> None:
    job = labelled("straggler.compute").job
    late = job.instances["late"][job.instances["late"] != NULL]
    assert np.bincount(late, minlength=4).argmax() == 2
    waits = [int((job.members["ready_ns"] - job.members["start_ns"])[job.members["rank"] == p].sum()) for p in range(4)]
    assert waits[2] == min(waits)


@pytest.mark.parametrize("name", list(SCENARIOS))
def test_ledger_sums_to_each_step_exactly(labelled: Runs, name: str) -> None:
    job = labelled(name).job
    for position, facts in enumerate(job.ranks):
        mine = job.ledger["rank"] == position
        booked = np.zeros(len(facts.steps), np.int64)
        np.add.at(booked, job.ledger["step"][mine], job.ledger["dur_ns"][mine])
        assert (booked == facts.steps["end_ns"] - facts.steps["start_ns"]).all()
        assert (job.ledger["dur_ns"][mine] >= 0).all()


@pytest.mark.parametrize("name", NAMES)
def test_blame_sums_to_the_exposed_waits_exactly(labelled: Runs, name: str) -> None:
    """Nothing is charged twice and nothing is lost: per victim and step, charges equal the waiting of the ledger."""
    job = labelled(name).job
    waiting = np.isin(job.ledger["cause"], (CAUSE["comm_wait"], CAUSE["pipeline_bubble"]))
    for position, facts in enumerate(job.ranks):
        booked, charged = np.zeros(len(facts.steps), np.int64), np.zeros(len(facts.steps), np.int64)
        mine = waiting & (job.ledger["rank"] == position)
        np.add.at(booked, job.ledger["step"][mine], job.ledger["dur_ns"][mine])
        inside = (job.blame["victim"] == position) & (job.blame["step"] >= 0) & (job.blame["step"] < len(facts.steps))
        np.add.at(charged, job.blame["step"][inside], job.blame["dur_ns"][inside])
        assert charged.tolist() == booked.tolist()


def test_blame_names_the_culprit_and_what_it_did(labelled: Runs) -> None:
    for name, culprit, cause in (("straggler.compute", 2, "compute"), ("input.straggler", 3, "dataloader")):
        blame = labelled(name).job.blame
        charged = np.zeros((4, len(CAUSES)))
        known = blame["culprit"] != NULL
        np.add.at(charged, (blame["culprit"][known], blame["cause"][known]), blame["dur_ns"][known])
        assert np.unravel_index(charged.argmax(), charged.shape) == (culprit, CAUSE[cause])
        assert charged[culprit, CAUSE[cause]] > 0.7 * charged.sum()


def test_pace_measures_the_slow_device_and_nobody_else(labelled: Runs) -> None:
    factor = labelled("straggler.compute").measures.compute.factor
    typical = float(np.median(factor))
    assert factor[2] / typical == pytest.approx(1.3, abs=0.03)
    assert np.abs(np.delete(factor, 2) / typical - 1).max() < 0.02


def test_a_missing_rank_is_said_and_blamed_on_nobody(labelled: Runs) -> None:
    job = job_facts([f for f in labelled("straggler.compute").job.ranks if f.identity.rank != 2])
    assert job.missing_ranks == (2,)
    assert any("were not traced: 2" in note.issue for note in job.health)
    assert not job.instances["complete"].any()
