"""A wait ends when the last member arrives, and the late rank shows the short kernel."""

import numpy as np
import pytest
from labelled_runs import Runs

from ddprof.tables import NULL

NAMES = ("clean.ddp", "clean.fsdp", "clean.tpdp", "clean.pp", "straggler.compute", "input.straggler", "comm.slow_link")


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
