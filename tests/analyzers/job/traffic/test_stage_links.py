"""Pairs of ranks whose messages are slow: against pairs that carry the same, on a link of the same kind."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ddprof.analyzers.job.model import INSTANCES, MEMBERS
from ddprof.analyzers.job.traffic.stage_links import message_ends, stage_links
from ddprof.tables import NULL

FAST, SLOW = 100_000, 300_000
Link = tuple[int, int, int, int]  # two ranks, transfer (ns), bytes


def job(*links: Link, hosts: str = "aaaa", late_ns: int = 50_000, stages: Any = None, until_ns: int = 10**9) -> Any:
    """Six messages per link; the first rank of each is early by `late_ns`. The two steps end at `until_ns`."""
    sizes, rows = [], []
    for a, b, transfer, size in links:
        for _ in range(6):
            at = 1_000_000 * len(sizes)
            rows += [(len(sizes), p, len(sizes), begun, at + transfer) for p, begun in ((a, at - late_ns), (b, at))]
            sizes.append(size)
    steps = np.array([-(10**9), 0]), np.array([0, until_ns])
    names = ("instance", "rank", "comm", "start_ns", "end_ns")
    members = {name: [row[i] for row in rows] for i, name in enumerate(names)}
    alike = {"op": 9, "group": 0, "is_message": True, "members": 2, "transfer_ns": 1, "complete": True, "late": 0}
    instances = {name: [value] * len(sizes) for name, value in alike.items()}
    return SimpleNamespace(
        instances=INSTANCES.table(instances | {"size_bytes": sizes}),
        members=MEMBERS.table({**members, "ready_ns": members["start_ns"]}),
        ranks=(SimpleNamespace(steps=SimpleNamespace(bounds=steps)),) * len(hosts),
        clock=SimpleNamespace(domain_of=tuple(hosts)),
        pipeline=SimpleNamespace(stages=stages) if stages else None,
        per_step_ns=(1, 1),
    )


def test_the_slow_pair_is_named_whoever_waited_by_the_ends_of_its_messages() -> None:
    compared, slow = stage_links(job((0, 1, FAST, 8), (1, 2, SLOW, 8), (2, 3, FAST, 8)))
    assert compared == 3 and slow is not None
    assert (slow.pairs, slow.culprits, slow.ratio) == (((1, 2),), (1, 2), pytest.approx(3.0))
    assert slow.excess_us == pytest.approx(6 / 2 * (SLOW - FAST) / 1e3)
    assert stage_links(job()) == (0, None) and all(len(ends) == 0 for ends in message_ends(job()))
    low, high = message_ends(job((2, 1, FAST, 8)))
    assert np.array_equal(low, [1] * 6) and np.array_equal(high, [2] * 6)


def test_messages_outside_the_steps_cost_no_step_time() -> None:
    _, slow = stage_links(job((1, 2, SLOW, 8), (0, 1, FAST, 8), (2, 3, FAST, 8), until_ns=2_900_000))
    assert slow is not None and slow.excess_us == pytest.approx(3 / 2 * (SLOW - FAST) / 1e3)


@pytest.mark.parametrize(
    ("slow_links", "hosts", "culprits"),
    [
        ([(0, 1, SLOW, 8), (1, 2, SLOW, 8), (2, 3, FAST, 8), (3, 4, FAST, 8)], "aaaaa", (1,)),  # all of one rank
        ([(0, 1, FAST, 8), (1, 2, SLOW, 8), (2, 3, FAST, 8)], "aabb", None),  # between hosts, the others inside one
        ([(0, 1, FAST, 8), (1, 2, 20 * FAST, 8), (2, 3, FAST, 8)], "aabb", None),  # as a usual network is slower
        ([(0, 1, FAST, 8), (1, 2, 60 * FAST, 8), (2, 3, FAST, 8)], "aabb", (1, 2)),  # slower than any
        ([(0, 1, FAST, 8), (1, 2, SLOW, 24), (2, 3, FAST, 8)], "aaaa", None),  # other messages
    ],
)
def test_who_is_named_of_slow_links(slow_links: list[Link], hosts: str, culprits: tuple[int, ...] | None) -> None:
    slow = stage_links(job(*slow_links, hosts=hosts))[1]
    assert (slow and slow.culprits) == culprits


def test_without_sizes_only_replicas_of_one_boundary_are_compared() -> None:
    stages = ((0, 1), (2, 3), (4, 5))
    links = [(0, 2, FAST, NULL), (1, 3, FAST, NULL), (2, 4, SLOW, NULL), (3, 5, SLOW, NULL)]
    assert stage_links(job(*links, hosts="aaaaaa", stages=stages)) == (4, None)
    links[3] = (3, 5, FAST, NULL)
    _, slow = stage_links(job(*links, hosts="aaaaaa", stages=stages))
    assert slow is not None and slow.culprits == (2, 4)
