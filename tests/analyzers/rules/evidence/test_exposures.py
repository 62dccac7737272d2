"""Messages of one size are latency where their link is known to be faster than they are."""

import numpy as np
import pytest

from ddprof.analyzers.job.traffic.statistics import CommStats, Traffic
from ddprof.analyzers.rules.evidence.exposures import is_slow_for_size

KIB = 1024.0


def traffic(op: str, size_bytes: float, took_us: float, crosses_hosts: bool = True, role: str = "dp") -> Traffic:
    """Fifty equal messages of four ranks."""
    sizes, times = np.full(50, size_bytes), np.full(50, took_us)
    return Traffic(op, role, 4, 50.0, float(sizes.sum()), float(times.sum()), 500.0, sizes, times, crosses_hosts)


def is_slow(*said: Traffic) -> bool:
    return is_slow_for_size(said[0], CommStats(said))


BUCKETS = traffic("all_reduce", 512 * KIB, 66.0)  # 12 GB/s on the bus


@pytest.mark.parametrize(
    ("other", "slow"),
    [
        ([], False),
        ([traffic("broadcast", 4_000_000.0, 82.0)], True),  # 49 GB/s
        ([traffic("broadcast", 4_000_000.0, 250.0)], False),  # 16 GB/s
        ([traffic("broadcast", 4_000_000.0, 82.0, role="tp")], False),  # other links
        ([traffic("broadcast", 4_000_000.0, 82.0, crosses_hosts=False)], False),
    ],
)
def test_a_link_that_moved_other_messages_faster_shows_what_the_bytes_take(other: list[Traffic], slow: bool) -> None:
    assert is_slow(BUCKETS, *other) == slow
    assert is_slow(traffic("all_reduce", 512 * KIB, 500.0))  # a small message that takes very long, on any link


@pytest.mark.parametrize("size_kib,took_us,slow", [(512, 120.0, True), (512, 66.0, False), (8192, 2_000.0, False)])
def test_devices_of_one_host_are_joined_by_pcie_at_least(size_kib: int, took_us: float, slow: bool) -> None:
    """Latency is twice the time of the bytes, and not so long that the link itself must be slow."""
    assert is_slow(traffic("all_reduce", size_kib * KIB, took_us, crosses_hosts=False)) == slow
    assert not is_slow(traffic("all_reduce", size_kib * KIB, took_us))
