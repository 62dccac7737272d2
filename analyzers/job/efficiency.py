"""POP efficiencies, overlap, bus bandwidth and MFU of a job.

POP's standard metrics: parallel efficiency = load balance x communication efficiency, and communication efficiency =
serialisation x transfer. The time without transfers comes from a replay in which they are instant.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.model import NO_STRING, RankFacts, Work
from ddprof.analyzers.facts.names import COMPILED, ENGINE, matches
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.traffic.cost import bus_factor
from ddprof.analyzers.job.traffic.statistics import Traffic
from ddprof.hardware import device_link, peak_flops
from ddprof.tables import NULL, Array
from ddprof.units import format_name, format_rate


def efficiency(measures: Measures, transfer_free_step_us: float | None) -> dict[str, Any]:
    """Metrics of the contract; those that cannot be computed are None. Shares in [0, 1], bandwidth in GB/s."""
    compute = measures.cause_us("compute")
    step = measures.step_us
    if step <= 0 or not len(compute) or compute.max() <= 0:
        return {"bus_bandwidth_gbps": bus_bandwidth(measures), "last_arrivals": last_arrivals(measures)}
    balance = float(compute.mean() / compute.max())
    comm = min(1.0, float(compute.max() / step))
    ideal = max(transfer_free_step_us, float(compute.max())) if transfer_free_step_us else None
    transfer = min(1.0, ideal / step) if ideal else None
    moving_us = sum(t.transfer_us for t in measures.comm.traffic)
    return {
        "parallel_efficiency": balance * comm,
        "load_balance": balance,
        "comm_efficiency": comm,
        "serialisation": comm / transfer if transfer else None,
        "transfer": transfer,
        # Share of the transfer time that compute hides.
        "overlap": sum(t.hidden_us for t in measures.comm.traffic) / moving_us if moving_us > 0 else None,
        "mfu": _mfu(measures),
        "bus_bandwidth_gbps": bus_bandwidth(measures),
        "last_arrivals": last_arrivals(measures),
    }


def longest_operator(measures: Measures) -> tuple[str, float, float] | None:
    """The operator in which the ranks compute longest, with all that it calls on CPU ranks and else the innermost
    around the launch, its share of their steps, and the share of it that the first of several calls on each rank takes;
    a kernel where no operator is recorded, or all of a compiled graph. None where neither takes time.
    """
    spent_ns: Counter[str] = Counter()
    first_ns: Counter[str] = Counter()
    for facts in measures.job.ranks:
        names, lasting_ns = _computing(facts)
        kinds, first, which, calls = np.unique(names, return_index=True, return_inverse=True, return_counts=True)
        totals_ns = np.bincount(which, weights=lasting_ns, minlength=len(kinds))
        once_ns = np.where(calls > 1, lasting_ns[first], 0)
        for counted_ns, each_ns in ((spent_ns, totals_ns), (first_ns, once_ns)):
            counted_ns.update({facts.strings[k]: int(ns) for k, ns in zip(kinds, each_ns, strict=True)})
    name, longest_ns = next(iter(spent_ns.most_common(1)), ("", 0))
    if not longest_ns:
        return None
    steps_ns = sum(int((f.steps["end_ns"] - f.steps["start_ns"]).sum()) for f in measures.job.ranks)
    share = min(1.0, longest_ns / steps_ns)  # streams run side by side
    return format_name(name.removeprefix(ENGINE)), share, first_ns[name] / max(longest_ns, 1)


def _computing(facts: RankFacts) -> tuple[Array, Array]:
    """Name and duration, ns, of what a rank computes in its steps."""
    if len(facts.host_operators):
        ops = facts.host_operators
        start, lasting, names = ops["start_ns"], ops["dur_ns"], ops["name"]
    else:
        ops = facts.device_ops.take(np.flatnonzero(facts.device_ops["work"] == Work.COMPUTE))
        start, lasting = ops["start_ns"], ops["end_ns"] - ops["start_ns"]
        is_named = ops["operator"] != NO_STRING
        is_named[is_named] = ~matches(COMPILED, facts.strings)[ops["operator"][is_named]]
        names = np.where(is_named, ops["operator"], ops["name"])
    inside = intervals.contains(facts.steps.bounds, start)
    return names[inside], lasting[inside]


def last_arrivals(measures: Measures) -> dict[str, Any]:
    """Operations in which each rank arrived last, among those with several members: {"of": n, "by_rank": {rank: k}}."""
    late = measures.job.instances["late"]
    last = late[late != NULL]
    positions, counts = np.unique(last, return_counts=True)
    ranks = measures.job.rank_ids
    return {"of": len(last), "by_rank": {ranks[int(p)]: int(n) for p, n in zip(positions, counts, strict=True)}}


def bus_bandwidth(measures: Measures) -> dict[str, float]:
    """Median bus bandwidth per collective over all matched instances with known size, GB/s (10^9)."""
    rates: dict[str, list[float]] = {}
    for traffic in measures.comm.traffic:
        rates.setdefault(traffic.op, []).extend(_rates_gbps(traffic))
    return {op: float(np.median(values)) for op, values in rates.items() if values}


def reached_words(measures: Measures, traffic: Traffic) -> str:
    """Median bus bandwidth of one kind of communication and, where known, the rate of the link inside a node; "" where
    sizes are unknown.
    """
    rates_gbps = _rates_gbps(traffic)
    if not rates_gbps:
        return ""
    link = device_link(measures.job.ranks[0].device.name)
    beside = f"; the link between devices of a node has {link / 1e9:.0f}" if link else ""
    return f"{traffic.op} reaches a bus bandwidth of {format_rate(float(np.median(rates_gbps)) * 1e9)} (median){beside}"


def _rates_gbps(traffic: Traffic) -> list[float]:
    """Bus bandwidth of every instance of known size, GB/s (10^9)."""
    factor = bus_factor(traffic.op, traffic.group_size)
    usable = (traffic.sizes_bytes > 0) & (traffic.times_us > 0)
    if factor is None or not usable.any():
        return []
    rates: list[float] = (traffic.sizes_bytes[usable] / traffic.times_us[usable] / 1e3 * factor).tolist()
    return rates


def _mfu(measures: Measures) -> float | None:
    """FLOPs of the recorded shapes per step over the device's peak. None without shapes or a known device, and above 1,
    where shapes, times or the device's name must be wrong.
    """
    job = measures.job
    rates = []
    for facts in job.ranks:
        groups = facts.kernel_groups
        counted = np.nansum(groups["flops"]) if len(groups) else 0.0
        peak = peak_flops(facts.device.name, fp32=bool(groups["is_fp32"].any())) if len(groups) else None
        if not counted or not peak:
            return None
        wall = float((facts.steps["end_ns"] - facts.steps["start_ns"]).sum()) / 1e9
        rates.append(float(counted) / wall / peak)
    return float(np.mean(rates)) if rates and max(rates) <= 1.0 else None
