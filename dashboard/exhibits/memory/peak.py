"""The fullest moment explained: what tensors held before the step, and what each phase added until then."""

from __future__ import annotations

from ddprof.analyzers.facts.memory.peak import PHASES, PeakParts, peak_parts
from ddprof.dashboard.exhibits.parts.exhibit import Exhibit, sheet
from ddprof.dashboard.exhibits.parts.numbers import MAX_LINES
from ddprof.dashboard.figures.charts import Part, Stacked
from ddprof.dashboard.runs.view import View
from ddprof.units import format_bytes

GIB = 2**30
_QUESTION = "What is the peak made of?"
_COLUMNS = ("rank", "step", "phase", "peak (bytes)", "held before the step (bytes)", *(f"{p} (bytes)" for p in PHASES))
_UNKNOWN = (
    "Totals alone are recorded: parameters, gradients and states of the optimizer are not told apart "
    "(torch.cuda.memory._dump_snapshot records each tensor)."
)


def memory_peak(view: View) -> Exhibit:
    """Of the ranks that the filter leaves; a sentence where totals over time or phases were not recorded."""
    job = view.opened.job
    parts = {rank: peak_parts(facts) for rank, facts in zip(job.rank_ids, job.ranks, strict=True) if view.shows(rank)}
    known = {rank: part for rank, part in parts.items() if part is not None}
    if not known:
        reading = f"Not known: the traces hold no totals over time beside phases of the step. {_UNKNOWN}"
        return Exhibit("memory-peak", _QUESTION, reading, sheet(_COLUMNS, []), follows=("ranks",))
    rows = [(r, p.step, p.phase, p.peak, p.before, *p.grown) for r, p in known.items()]
    worst = max(known, key=lambda rank: known[rank].peak)
    drawn = sorted(sorted(known, key=lambda rank: -known[rank].peak)[:MAX_LINES])
    some = {rank: known[rank] for rank in drawn}
    chart = _chart(some) if all(min(part.grown) >= 0 for part in some.values()) else None
    reading = f"{_reading(worst, known[worst])} {_UNKNOWN}"
    return Exhibit("memory-peak", _QUESTION, reading, sheet(_COLUMNS, rows), chart, ("ranks",))


def _reading(rank: int, part: PeakParts) -> str:
    grown = [
        f"{format_bytes(abs(value))} {'more' if value > 0 else 'less'} {_when(phase)}"
        for phase, value in zip(PHASES, part.grown, strict=True)
        if value
    ]
    return (
        f"Rank {rank} is fullest in step {part.step}: {format_bytes(part.before)} held before the step (parameters, "
        f"states of the optimizer, what is kept), {', '.join(grown) or 'and nothing more'}."
    )


def _when(phase: str) -> str:
    words = {"forward": "in the forward pass", "backward": "in the backward pass", "optimizer": "in the optimizer"}
    return words.get(phase, "between these")


def _chart(parts: dict[int, PeakParts]) -> Stacked:
    known = list(parts.values())
    colors = ("accent", "good", "heat-less", "line")  # no phase is a cause of the ledger
    shown = [Part("before", "held before the step", "quiet", [part.before / GIB for part in known])]
    for number, (phase, color) in enumerate(zip(PHASES, colors, strict=True)):
        shown.append(Part(phase, f"{phase}, until the peak", color, [part.grown[number] / GIB for part in known]))
    return Stacked([f"rank {rank}" for rank in parts], shown, "GiB")
