"""Members of one operation find one another, with and without sequence numbers."""

from dataclasses import replace

import numpy as np
import pytest
from labelled_runs import Runs

from ddprof.analyzers.job.assemble import job_facts
from ddprof.analyzers.job.model import JobFacts
from ddprof.tables import NULL

NAMES = ("clean.ddp", "clean.fsdp", "clean.tpdp", "clean.pp", "straggler.compute", "input.straggler", "comm.slow_link")


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
    unnumbered = [replace(f, comms=f.comms.replace(seq=np.full(len(f.comms), NULL))) for f in job.ranks]
    assert memberships(job_facts(unnumbered)) == memberships(job)
