"""Gradients that pass through groups in turn, or through one rank, are named, with what that costs."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ddprof.analyzers.facts.names import COLLECTIVE_OPS
from ddprof.analyzers.job.model import MEMBERS
from ddprof.analyzers.job.traffic.routes import HIERARCHICAL, SERVER, route_of


def job_of(calls: str, hosts: str, role: str = "") -> Any:
    """Rank 0 of four in two steps of these calls, as "operation group": of ranks (0, 1), (0, 2), or all."""
    each = 2 * [call.split() for call in calls.split(", ")]
    rows = {"rank": 0, "comm": 0, "start_ns": 0, "end_ns": 0, "ready_ns": 0, "instance": np.arange(len(each))}
    ops, groups = (np.array(column) for column in ([COLLECTIVE_OPS.index(op) for op, _ in each], [g for _, g in each]))
    instances = {"op": ops, "group": groups.astype(int), "is_message": np.zeros(len(each))}
    told = {"role": np.array([role] * 3), "size": np.array([2, 2, 4]), "ranks": ["0,1", "0,2", "0,1,2,3"]}
    ranks, clock = [SimpleNamespace(steps=[0, 1])], SimpleNamespace(domain_of=hosts)
    of_job = {"pipeline": None, "world_size": 4, "rank_ids": (0, 1, 2, 3), "missing_ranks": (), "clock": clock}
    return SimpleNamespace(ranks=ranks, members=MEMBERS.table(rows), instances=instances, groups=told, **of_job)


@pytest.mark.parametrize(
    ("calls", "hosts", "kind", "words"),
    [
        ("reduce_scatter 0, all_reduce 1, all_gather 0", "aabb", HIERARCHICAL, "here they lie within hosts"),
        ("reduce_scatter 0, all_reduce 1, all_gather 0", "abab", HIERARCHICAL, "here they cross hosts"),
        ("reduce 0, all_reduce 1, broadcast 0", "aaaa", HIERARCHICAL, "here all ranks are on one machine"),
        ("reduce 2, broadcast 2", "aaaa", SERVER, "waits once"),
        ("all_reduce 2, broadcast 2", "aaaa", "", ""),
        ("reduce_scatter 0, all_gather 0", "aabb", "", ""),
    ],
)
def test_the_way_of_the_gradients_is_named(calls: str, hosts: str, kind: str, words: str) -> None:
    route = route_of(job_of(calls, hosts))
    assert (route.kind if route else "") == kind and (not route or route.words[1].endswith(words))
    assert route_of(job_of(calls, hosts, role="fsdp_shard")) is None  # of a sharded model replicated over hosts
