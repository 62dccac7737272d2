"""Messages of one size alone cannot separate latency from bandwidth. What else is known of their link can.

A link that has moved other messages of these groups at some rate, or that joins devices of one host, has at least a
certain bandwidth. What a message takes beyond its bytes at that rate is latency.
"""

from __future__ import annotations

import numpy as np

from ddprof.analyzers.job.traffic.bus_factor import bus_factor
from ddprof.analyzers.job.traffic.statistics import CommStats, Traffic
from ddprof.analyzers.job.traffic.transfer_curve import LATENCY_BOUND_RATE
from ddprof.tables import Array

LATENCY_SHARE = 0.5  # of the transfer that is per-call latency
FASTEST = 0.9  # quantile of the rates that a link is known by: the fastest message of all may be a fluke
HOST_BYTES_PER_US = 15_750.0  # PCIe 3.0 x16 (PCI-SIG): devices of one host are seldom joined by less
# NCCL's base and hop latencies (tuning.cc) add up to 20 to 40 us in a node; what is an order of magnitude longer is
# rather a link that is slower than PCIe should be.
MOST_IN_HOST_US = 300.0


def is_slow_for_size(traffic: Traffic, comm: CommStats) -> bool:
    """Whether the typical message spends most of its time on something else than its bytes."""
    known = (traffic.sizes_bytes > 0) & (traffic.times_us > 0)
    if not known.any():
        return False
    size, took_us = float(np.median(traffic.sizes_bytes[known])), float(np.median(traffic.times_us[known]))
    if size / took_us < LATENCY_BOUND_RATE * 1e3:
        return True
    factor = bus_factor(traffic.op, traffic.group_size)
    if factor is None:
        return False
    shown = max((_rate(other) for other in comm.traffic if _shares_link(traffic, other)), default=0.0)
    if shown and _latency_us(size * factor, took_us, shown) >= LATENCY_SHARE * took_us:
        return True
    latency_us = 0.0 if traffic.crosses_hosts else _latency_us(size * factor, took_us, HOST_BYTES_PER_US)
    return LATENCY_SHARE * took_us <= latency_us <= MOST_IN_HOST_US


def _shares_link(traffic: Traffic, other: Traffic) -> bool:
    return (other.role, other.group_size, other.crosses_hosts) == (
        traffic.role,
        traffic.group_size,
        traffic.crosses_hosts,
    )


def _latency_us(bus_bytes: float, took_us: float, bytes_per_us: float) -> float:
    return took_us - bus_bytes / bytes_per_us


def _rate(traffic: Traffic) -> float:
    """Bytes per us that the links of these groups carried at their best; 0 where no size or no factor is known."""
    factor = bus_factor(traffic.op, traffic.group_size)
    known: Array = (traffic.sizes_bytes > 0) & (traffic.times_us > 0)
    if factor is None or not known.any():
        return 0.0
    return factor * float(np.quantile(traffic.sizes_bytes[known] / traffic.times_us[known], FASTEST))
