"""Blame sums to the exposed waits, and names the culprit and what it did."""

import numpy as np
import pytest
from labelled_runs import Runs

from ddprof.causes import CAUSE_CODE, CAUSES
from ddprof.tables import NULL

NAMES = ("clean.ddp", "clean.fsdp", "clean.tpdp", "clean.pp", "straggler.compute", "input.straggler", "comm.slow_link")


@pytest.mark.parametrize("name", NAMES)
def test_blame_sums_to_the_exposed_waits_exactly(labelled: Runs, name: str) -> None:
    """Nothing is charged twice and nothing is lost: per victim and step, charges equal the waiting of the ledger."""
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
