"""Traffic of which some members recorded nothing is not whole, though their files are there."""

from dataclasses import replace

import numpy as np
import pytest
from labelled_runs import Runs

from ddprof.analyzers.facts.names import OP_CODE
from ddprof.analyzers.job.traffic.statistics import comm_stats


@pytest.mark.parametrize(("share", "is_whole"), [(0.2, True), (0.8, False)])
def test_traffic_of_which_most_calls_are_missing_is_not_whole(labelled: Runs, share: float, is_whole: bool) -> None:
    job = labelled("comm.bandwidth_bound").job
    rows = np.flatnonzero(job.instances["op"] == OP_CODE["all_reduce"])
    complete = job.instances["complete"].copy()
    complete[rows[: round(share * len(rows))]] = False
    stats = comm_stats(replace(job, instances=job.instances.replace(complete=complete)), {})
    largest = max((t for t in stats.traffic if t.op == "all_reduce"), key=lambda t: t.total_bytes)
    assert largest.is_whole == is_whole
