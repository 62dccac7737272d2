"""Calls that take what their bytes take wait for nobody; others may."""

import numpy as np
import pytest
from labelled_runs import Runs

from ddprof.analyzers.job.assemble import job_facts
from ddprof.analyzers.job.traffic.explained import is_all_transfer, with_known_transfer

SIZES = np.tile([1.0, 25.0, 25.0, 6.0], 4) * 2**20
TIMES = 40.0 + SIZES / 10_000.0  # us: a latency, and 10 GB/s


def test_bytes_at_one_rate_explain_messages_of_several_sizes_on_one_rank_or_all(labelled: Runs) -> None:
    assert is_all_transfer(SIZES, TIMES)
    assert is_all_transfer(SIZES, TIMES * np.linspace(1.0, 1.05, len(SIZES)))
    assert not is_all_transfer(SIZES[1::4], TIMES[1::4])
    assert not is_all_transfer(np.full(16, 2.0**20), np.full(16, 145.0))
    assert not is_all_transfer(SIZES[:7], TIMES[:7])
    assert not is_all_transfer(np.zeros(16), TIMES)

    def told(name: str, position: int) -> np.ndarray:
        return with_known_transfer(job_facts([labelled(name).job.ranks[position]]))

    assert told("comm.bandwidth_bound", 2).all()
    assert not told("straggler.compute", 0).any()
    assert with_known_transfer(labelled("straggler.compute").job).all()


@pytest.mark.parametrize("which", [SIZES > 0, SIZES == 2**20, np.arange(len(SIZES)) == 3])
def test_lateness_at_every_call_at_the_first_or_once_is_not_explained(which: np.ndarray) -> None:
    assert not is_all_transfer(SIZES, TIMES + 6_000.0 * which)
