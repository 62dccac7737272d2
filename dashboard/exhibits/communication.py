"""Communication: is the network slow, or the peer late? How much communication does compute hide?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ddprof.analyzers.job.traffic.statistics import Traffic
from ddprof.dashboard.exhibits.parts.exhibit import Exhibit, sheet
from ddprof.dashboard.exhibits.parts.numbers import bandwidths, group_times
from ddprof.dashboard.exhibits.places import pair_exhibits
from ddprof.dashboard.figures.charts import Bandwidths, Part, Stacked
from ddprof.dashboard.runs.view import View
from ddprof.report.phrases import LEAST_SHARE, clean
from ddprof.units import format_bytes, format_rate, format_share, format_us

MAX_GROUPS = 40  # in one chart: the longest
NOT_RECORDED = "not recorded"


def has_data(view: View) -> bool:
    """True where any communication was recorded."""
    return len(view.opened.job.instances) > 0 or len(view.opened.measures.comm.traffic) > 0


def exhibits(view: View) -> Iterator[Exhibit]:
    """The charts of the page."""
    yield from (_groups(view), _overlap(view), _bandwidth(view))
    yield from pair_exhibits(view)


def _groups(view: View) -> Exhibit:
    groups = group_times(view.opened.job)[:MAX_GROUPS]
    columns = ("process group", "ranks", "calls/step", "waiting (ms/step)", "moving data (ms/step)", "bytes/step")
    rows = [
        (clean(g.name), g.size, g.calls, g.wait_us / 1e3, g.transfer_us / 1e3, _recorded(g.total_bytes)) for g in groups
    ]
    question = "Is the network slow, or does a peer come late?"
    if not groups:
        return Exhibit("groups", question, "No collective was matched between two ranks.", sheet(columns, rows))
    first = groups[0]
    share = first.wait_us / max(first.wait_us + first.transfer_us, 1e-9)
    blame = "the peers, not the network" if share > 0.5 else "the transfer, not the peers"
    reading = (
        f"In {clean(first.name)} a rank waits {format_us(first.wait_us)} per step for the last member, then moves data "
        f"for {format_us(first.transfer_us)}: it is mostly {blame} ({format_share(max(share, 1 - share))}). "
        "Hidden time is included."
    )
    parts = [
        Part("comm_wait", "waiting for the last member", "comm-wait", [g.wait_us / 1e3 for g in groups]),
        Part("comm_transfer", "moving data", "comm-transfer", [g.transfer_us / 1e3 for g in groups]),
    ]
    chart = Stacked([f"{g.name}, {g.size} ranks" for g in groups], parts, "ms per step and rank")
    return Exhibit("groups", question, reading, sheet(columns, rows), chart)


def _overlap(view: View) -> Exhibit:
    traffic = view.opened.measures.comm.traffic
    names = [_name(t) for t in traffic]
    columns = (
        *("operation", "group size", "calls/step", "bytes/step", "mean message (bytes)"),
        *("transfer (ms/step)", "exposed (ms/step)", "hidden (%)", "crosses hosts"),
    )
    rows = []
    for name, t in zip(names, traffic, strict=True):
        times = (t.transfer_us / 1e3, t.exposed_us / 1e3, t.hidden_share * 100)
        sizes = (_recorded(t.total_bytes or None), _recorded(t.mean_bytes or None))  # 0: no size was recorded
        rows.append((name, t.group_size, t.count, *sizes, *times, "yes" if t.crosses_hosts else "no"))
    question = "How much of the data movement does compute hide?"
    total = sum(t.transfer_us for t in traffic)
    if total <= 0:
        return Exhibit("overlap", question, "No communication was seen inside the steps.", sheet(columns, rows))
    exposed, under_compute = sum(t.exposed_us for t in traffic), sum(t.hidden_us for t in traffic)
    hidden = format_share(under_compute / total) if under_compute >= LEAST_SHARE * total else "none"
    reading = (
        f"Of {format_us(total)} of data movement per step, {hidden} runs under compute; "
        f"{format_us(exposed)} is exposed, most of it in {names[0]}."
    )
    parts = [
        Part("exposed", "exposed", "comm-transfer", [t.exposed_us / 1e3 for t in traffic]),
        Part("comm_hidden", "hidden under compute", "compute", [t.hidden_us / 1e3 for t in traffic]),
    ]
    return Exhibit("overlap", question, reading, sheet(columns, rows), Stacked(names, parts, "ms per step"))


def _name(traffic: Traffic) -> str:
    return f"{traffic.op} ({traffic.role})" if traffic.role else traffic.op


def _recorded(size_bytes: float | None) -> float | str:
    return NOT_RECORDED if size_bytes is None else size_bytes


def _bandwidth(view: View) -> Exhibit:
    series, rows = {}, []
    for traffic in view.opened.measures.comm.traffic:
        sizes, rates = bandwidths(traffic)
        if len(sizes):
            series[_name(traffic)] = (sizes.tolist(), rates.tolist())
            rows += [(_name(traffic), int(s), float(r)) for s, r in zip(sizes, rates, strict=True)]
    question = "Do messages reach the speed of the link?"
    columns = ("operation", "size (bytes)", "bus bandwidth (GB/s)")
    if not rows:
        return Exhibit("bandwidth", question, "Message sizes were not recorded.", sheet(columns, rows))
    best = max(row[2] for row in rows)
    weight = np.array([row[1] for row in rows], float)
    small = float(weight[[row[2] < best / 2 for row in rows]].sum() / weight.sum())
    slow = f"{format_share(small)} of the bytes move" if small >= LEAST_SHARE else "none moves"
    reading = (
        f"The fastest message reaches {format_rate(best * 1e9)} (dashed); {slow} at less than half of that. "
        f"The median message has {format_bytes(float(np.median(weight)))}."
    )
    chart = Bandwidths(series, best, f"best seen: {format_rate(best * 1e9)}")
    return Exhibit("bandwidth", question, reading, sheet(columns, rows), chart)
