"""Memory: how close is each rank to its limit?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ddprof.analyzers.facts.memory import PHASES, PeakParts, peak_parts
from ddprof.dashboard.exhibits.parts.exhibit import Exhibit, following, sheet
from ddprof.dashboard.exhibits.parts.numbers import MAX_LINES
from ddprof.dashboard.figures.charts import Curve, Curves, Part, Stacked
from ddprof.dashboard.runs.view import View
from ddprof.units import format_bytes, format_share, format_us

GIB = 2**30
NEAR_SHARE = 0.3  # of the device
_QUESTION = "How full is the memory at its peak?"
_PEAK_QUESTION = "What is the peak made of?"
_PARTS = tuple(f"{phase} (bytes)" for phase in PHASES)
_PEAK_COLUMNS = ("rank", "step", "phase", "peak (bytes)", "held before the step (bytes)", *_PARTS)
_WHEN = {"forward": "in the forward pass", "backward": "in the backward pass", "optimizer": "in the optimizer"}
_TOTALS_ALONE = (
    "Totals alone are recorded: parameters, gradients and states of the optimizer are not told apart "
    "(torch.cuda.memory._dump_snapshot records each tensor)."
)


@dataclass(frozen=True)
class Peak:
    """Memory of one rank at its peak, bytes; None where not recorded."""

    rank: int
    allocated: int
    reserved: int | None
    total: int | None

    @property
    def share(self) -> float:
        """Share of the device held by tensors; without the device's size, the bytes (only ever compared)."""
        return self.allocated / self.total if self.total else float(self.allocated)


def has_data(view: View) -> bool:
    """True where any rank recorded its memory."""
    return any(facts.memory.get("peak_allocated_bytes") for facts in view.opened.job.ranks)


def exhibits(view: View) -> Iterator[Exhibit]:
    """The charts of the page."""
    peaks = _peaks(view)
    rows = [(p.rank, p.allocated, p.reserved, p.total) for p in peaks]
    table = sheet(("rank", "peak allocated (bytes)", "peak reserved (bytes)", "device (bytes)"), rows)
    if not peaks:
        reading = (
            "Not known: the traces hold no memory events, so nothing is said of headroom. Record them with "
            "torch.profiler's profile_memory=True."
        )
        yield Exhibit("memory", _QUESTION, reading, table, follows=("ranks",))
        return
    worst = max(peaks, key=lambda p: p.share)
    drawn = sorted(sorted(peaks, key=lambda p: -p.share)[:MAX_LINES], key=lambda p: p.rank)
    more = f" Drawn: the {len(drawn)} fullest of {len(peaks)} ranks." if len(drawn) < len(peaks) else ""
    yield Exhibit("memory", _QUESTION, _reading(worst) + more, table, _chart(drawn), ("ranks",))
    yield memory_peak(view)
    yield following(_curve(view, worst), "ranks")


def _peaks(view: View) -> list[Peak]:
    job, peaks = view.opened.job, []
    for rank, facts in zip(job.rank_ids, job.ranks, strict=True):
        allocated = facts.memory.get("peak_allocated_bytes")
        if allocated and view.shows(rank):
            total = facts.memory.get("total_bytes") or facts.device.total_memory_bytes
            peaks.append(Peak(rank, allocated, facts.memory.get("peak_reserved_bytes"), total))
    return peaks


def _reading(worst: Peak) -> str:
    held = f"Rank {worst.rank} is the fullest: its tensors held up to {format_bytes(worst.allocated)}"
    if not worst.total:
        return f"{held}; the size of the device is not known."
    left = worst.total - max(worst.allocated, worst.reserved or 0)
    return (
        f"{held}, {format_share(worst.share)} of its {format_bytes(worst.total)}; {format_bytes(max(0, left))} of the "
        f"device is left{' beside what the allocator keeps' if worst.reserved else ''}."
    )


def _chart(peaks: list[Peak]) -> Stacked:
    reserved = [max(p.reserved or 0, p.allocated) for p in peaks]
    beyond = [(r - p.allocated) / GIB for p, r in zip(peaks, reserved, strict=True)]
    free = [max(0, (p.total or 0) - r) / GIB for p, r in zip(peaks, reserved, strict=True)]
    parts = [
        Part("allocated", "held by tensors", "accent", [p.allocated / GIB for p in peaks]),
        Part("reserved", "reserved beyond that (cache, fragmentation)", "quiet", beyond),
        Part("free", "free", "line", free),
    ]
    return Stacked([f"rank {p.rank}" for p in peaks], parts, "GiB")


def _curve(view: View, worst: Peak) -> Exhibit:
    """Memory of the fullest rank over time, from the allocator's own events."""
    question = "When is it fullest, and does the cache hold more than tensors need?"
    job, columns = view.opened.job, ("time (ms)", "allocated (bytes)", "reserved (bytes)")
    position = job.rank_ids.index(worst.rank)
    curve = job.ranks[position].memory.get("curve") or {}
    if not curve.get("at_ns"):
        return Exhibit("memory-curve", question, "The traces say how much, but not when.", sheet(columns, []))
    shift = job.shift_ns(position)
    at = [(ns - shift) / 1e6 for ns in curve["at_ns"]]
    rows = list(zip(at, curve["allocated_bytes"], curve["reserved_bytes"], strict=True))
    fullest, least = max(rows, key=lambda r: r[1] or 0), min((r[1] for r in rows if r[1] is not None), default=0)
    reading = (
        f"Rank {worst.rank} is fullest {format_us(fullest[0] * 1e3)} after the first step mark, "
        f"{format_bytes(fullest[1] or 0)}; at its emptiest tensors hold {format_bytes(least)}."
    )
    drawn = [Curve("held by tensors", at, _gib(curve["allocated_bytes"]))]
    if any(v is not None for v in curve["reserved_bytes"]):
        drawn.append(Curve("reserved by the allocator", at, _gib(curve["reserved_bytes"]), dotted=True))
    # A limit far above would press the curve flat; the picture above it shows the size.
    near = worst.total is not None and worst.allocated > NEAR_SHARE * worst.total
    limit = worst.total / GIB if worst.total and near else None
    chart = Curves(drawn, "ms since the first step mark", "GiB", limit, "size of the device")
    return Exhibit("memory-curve", question, reading, sheet(columns, rows), chart)


def _gib(values: list[int | None]) -> list[float | None]:
    return [None if v is None else v / GIB for v in values]


def memory_peak(view: View) -> Exhibit:
    """Peaks of the filtered ranks; a sentence where totals over time or phases were not recorded."""
    job = view.opened.job
    parts = {rank: peak_parts(facts) for rank, facts in zip(job.rank_ids, job.ranks, strict=True) if view.shows(rank)}
    measured = {rank: part for rank, part in parts.items() if part is not None}
    if not measured:
        reading = f"Not known: the traces hold no totals over time beside phases of the step. {_TOTALS_ALONE}"
        return Exhibit("memory-peak", _PEAK_QUESTION, reading, sheet(_PEAK_COLUMNS, []), follows=("ranks",))
    rows = [(r, p.step, p.phase, p.peak, p.before, *p.grown) for r, p in measured.items()]
    worst = max(measured, key=lambda rank: measured[rank].peak)
    drawn = sorted(sorted(measured, key=lambda rank: -measured[rank].peak)[:MAX_LINES])
    some = {rank: measured[rank] for rank in drawn}
    chart = _peak_chart(some) if all(min(part.grown) >= 0 for part in some.values()) else None
    part = measured[worst]
    grown = [
        f"{format_bytes(abs(value))} {'more' if value > 0 else 'less'} {_WHEN.get(phase, 'elsewhere')}"
        for phase, value in zip(PHASES, part.grown, strict=True)
        if value
    ]
    reading = (
        f"Rank {worst} is fullest in step {part.step}: {format_bytes(part.before)} held before the step (parameters, "
        f"states of the optimizer, what is kept), {', '.join(grown) or 'and nothing more'}. {_TOTALS_ALONE}"
    )
    return Exhibit("memory-peak", _PEAK_QUESTION, reading, sheet(_PEAK_COLUMNS, rows), chart, ("ranks",))


def _peak_chart(parts: dict[int, PeakParts]) -> Stacked:
    peaks = list(parts.values())
    colors = ("accent", "good", "heat-less", "line")  # no phase is a cause of the ledger
    shown = [Part("before", "held before the step", "quiet", [part.before / GIB for part in peaks])]
    for number, (phase, color) in enumerate(zip(PHASES, colors, strict=True)):
        shown.append(Part(phase, f"{phase}, until the peak", color, [part.grown[number] / GIB for part in peaks]))
    return Stacked([f"rank {rank}" for rank in parts], shown, "GiB")
