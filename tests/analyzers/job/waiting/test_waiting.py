"""Waits end when the last member arrives; blame sums to them and names the culprit; what occurs once names nobody."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from labelled_runs import Runs, only_run

from ddprof.analyzers.engine import Options, load_runs
from ddprof.analyzers.job.assemble import job_facts
from ddprof.analyzers.job.model import MEMBERS
from ddprof.analyzers.job.waiting.lateness import chance_of_most, latest_ranks, recurring
from ddprof.analyzers.job.waiting.waits import members_of
from ddprof.analyzers.sampling import unread_wait_ns
from ddprof.causes import CAUSE_CODE, CAUSES
from ddprof.tables import NULL

NAMES = ("clean.ddp", "clean.fsdp", "clean.tpdp", "clean.pp", "straggler.compute", "input.straggler", "comm.slow_link")


def test_each_rank_has_its_rows_in_order_and_a_rank_without_any_has_none() -> None:
    rank = np.array([2, 0, 2, 0, 0])
    members = MEMBERS.table({c.name: rank if c.name == "rank" else np.arange(5) for c in MEMBERS.columns})
    assert [members_of(members, position).tolist() for position in range(5)] == [[1, 3, 4], [], [0, 2], [], []]
    assert len(members_of(MEMBERS.empty(), 0)) == 0


def test_the_schedule_of_a_pipeline_makes_nobody_the_latest(labelled: Runs) -> None:
    job = labelled("clean.pp").job
    assert job.instances.take(np.unique(job.blame["instance"]))["is_message"].all()
    assert [late.chance for late in latest_ranks(job, CAUSES)] == [1.0]
    assert latest_ranks(replace(job, pipeline=None), CAUSES)[0].chance < 1.0


@pytest.mark.parametrize("name", NAMES)
def test_waits_end_when_the_last_member_arrives(labelled: Runs, name: str) -> None:
    job = labelled(name).job
    members = job.members
    assert (members["start_ns"] <= members["ready_ns"]).all() and (members["ready_ns"] <= members["end_ns"]).all()
    least = np.full(len(job.instances), np.iinfo(np.int64).max)
    np.minimum.at(least, members["instance"], members["end_ns"] - members["ready_ns"])
    assert (least == job.instances["transfer_ns"]).all()
    shortest_wait = np.full(len(job.instances), np.iinfo(np.int64).max)
    np.minimum.at(shortest_wait, members["instance"], members["ready_ns"] - members["start_ns"])
    assert (shortest_wait == 0).all()  # whoever came last waits for nobody


def test_the_slow_rank_comes_last_and_shows_the_short_kernel(labelled: Runs) -> None:
    job = labelled("straggler.compute").job
    assert np.bincount(job.instances["late"][job.instances["late"] != NULL], minlength=4).argmax() == 2
    waits = [int((job.members["ready_ns"] - job.members["start_ns"])[job.members["rank"] == p].sum()) for p in range(4)]
    assert waits[2] == min(waits)


@pytest.mark.parametrize("name", NAMES)
def test_blame_sums_to_the_exposed_waits_exactly(labelled: Runs, name: str) -> None:
    job = labelled(name).job
    waiting = np.isin(job.ledger["cause"], (CAUSE_CODE["comm_wait"], CAUSE_CODE["pipeline_bubble"]))
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
        assert np.unravel_index(charged.argmax(), charged.shape) == (culprit, CAUSE_CODE[cause])
        assert charged[culprit, CAUSE_CODE[cause]] > 0.7 * charged.sum()


def test_chance_of_being_last_in_most() -> None:
    assert chance_of_most(8, 8, 4) == pytest.approx(4 * 0.25**8) and chance_of_most(1, 8, 4) == 1.0


def test_a_startup_broadcast_names_nobody(shared_dir: Path) -> None:
    """Rank 0 is last in the first broadcast, for 32 s; rank 9 in 36 of 54 all-reduces."""
    run = only_run(shared_dir / "wild" / "recordings" / "horovod_late_rank_24")
    (found,) = latest_ranks(run.job, ("unknown",))
    assert (run.job.rank_ids[found.position], found.last) == (9, 36)
    assert found.waits == 42 and found.once_ns  # rank 0 is last in those of the first six steps, and never again
    once = run.job.blame["instance"] == run.job.blame["instance"][0]
    job = replace(run.job, blame=run.job.blame.replace(dur_ns=np.where(once, 10**12, run.job.blame["dur_ns"])))
    assert (recurring(job) == ~once).all()  # nor is one in a step that is longer than all others together


def test_collectives_of_which_all_members_were_read_wait_for_nobody_else(labelled: Runs) -> None:
    assert not unread_wait_ns(labelled("clean.tpdp").job).any()
    (two,) = load_runs([labelled("clean.tpdp").traces], Options(cache=False, ranks="0,3"))
    assert len(unread_wait_ns(two.job)) == len(two.job.groups)
    assert unread_wait_ns(two.job).sum() < 0.03 * two.job.step_ns * len(two.job.per_step_ns)


@pytest.mark.parametrize("is_device", [False, True])
def test_a_cpu_rank_that_leaves_late_waited_for_nobody(labelled: Runs, is_device: bool) -> None:
    """Kernels of one collective end together; a CPU rank may be without a CPU as its own ends."""
    ranks = [replace(facts, is_device_rank=is_device) for facts in labelled("clean.ddp").job.ranks]
    stuck_ns = 30_000_000
    comms = ranks[1].comms
    ranks[1] = replace(ranks[1], comms=comms.replace(end_ns=comms["end_ns"] + stuck_ns * (np.arange(len(comms)) == 3)))
    members = job_facts(ranks).members
    (row,) = np.flatnonzero((members["rank"] == 1) & (members["comm"] == 3))
    assert (members["ready_ns"] - members["start_ns"])[row] == pytest.approx(stuck_ns * is_device, abs=2_000_000)
