"""The ledger books every nanosecond of a step exactly once."""

import numpy as np
import pytest
from corpus import SCENARIOS
from labelled_runs import Runs


@pytest.mark.parametrize("name", list(SCENARIOS))
def test_ledger_sums_to_each_step_exactly(labelled: Runs, name: str) -> None:
    job = labelled(name).job
    for position, facts in enumerate(job.ranks):
        mine = job.ledger["rank"] == position
        booked = np.zeros(len(facts.steps), np.int64)
        np.add.at(booked, job.ledger["step"][mine], job.ledger["dur_ns"][mine])
        assert (booked == facts.steps["end_ns"] - facts.steps["start_ns"]).all()
        assert (job.ledger["dur_ns"][mine] >= 0).all()
