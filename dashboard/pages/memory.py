"""Memory: how near is each rank to its limit?"""

from __future__ import annotations

from collections.abc import Iterator

from ddprof.dashboard.exhibit import Exhibit, sheet
from ddprof.dashboard.figures.bars import stacked
from ddprof.dashboard.figures.base import palette
from ddprof.dashboard.view import View

from ddprof.units import format_bytes

GIB = 2**30


def exhibits(view: View) -> Iterator[Exhibit]:
    """The charts of the page."""
    yield _peaks(view)


def _peaks(view: View) -> Exhibit:
    job = view.session.job
    shown = [(rank, facts) for rank, facts in zip(job.rank_ids, job.ranks, strict=True) if view.shows(rank)]
    rows = []
    for rank, facts in shown:
        total = facts.memory.get("total_bytes") or facts.device.total_memory_bytes
        rows.append((rank, facts.memory.get("peak_allocated_bytes"), facts.memory.get("peak_reserved_bytes"), total))
    table = sheet(("rank", "peak allocated (bytes)", "peak reserved (bytes)", "device (bytes)"), rows)
    question = "How full is the memory at its peak?"
    known = [r for r in rows if r[1]]
    if not known:
        reading = "The traces hold no memory events. Record them with profile_memory=True (ddprof run does so with --memory)."
        return Exhibit("memory", question, reading, table)
    worst = max(known, key=lambda r: r[1] / (r[3] or 1))
    of = f", {worst[1] / worst[3]:.0%} of its {format_bytes(worst[3])}" if worst[3] else "; the size of the device is not known"
    reading = f"Rank {worst[0]} is the fullest: its tensors held up to {format_bytes(worst[1])}{of}."
    parts = {
        "allocated": [r[1] / GIB for r in known],
        "reserved": [max(0, (r[2] or r[1]) - r[1]) / GIB for r in known],
        "free": [max(0, (r[3] or 0) - (r[2] or r[1])) / GIB for r in known],
    }
    colors = palette(view.dark)
    looks = {
        "allocated": ("held by tensors", colors.cause("compute")),
        "reserved": ("reserved beyond that (cache, fragmentation)", colors.cause("allocator")),
        "free": ("free", colors.grid),
    }
    figure = stacked([f"rank {r[0]}" for r in known], parts, looks, colors, "GiB")
    return Exhibit("memory", question, reading, table, figure)
