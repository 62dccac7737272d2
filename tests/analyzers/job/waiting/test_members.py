"""Rows of MEMBERS rank by rank."""

import numpy as np

from ddprof.analyzers.job.model import MEMBERS
from ddprof.analyzers.job.waiting.members import members_of


def test_each_rank_has_its_rows_in_order_and_a_rank_without_any_has_none() -> None:
    rank = np.array([2, 0, 2, 0, 0])
    members = MEMBERS.table({c.name: rank if c.name == "rank" else np.arange(5) for c in MEMBERS.columns})
    assert [members_of(members, position).tolist() for position in range(5)] == [[1, 3, 4], [], [0, 2], [], []]
    assert len(members_of(MEMBERS.empty(), 0)) == 0
