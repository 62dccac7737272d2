"""Tables of the HTML report: ledger, what-if, efficiency."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ddprof.report.markup import Markup, tag
from ddprof.report.model import CAUSES, Report
from ddprof.report.phrases import CAUSE_WORDS, time_words
from ddprof.report.svg import heat_ranks
from ddprof.units import format_us


def ledger_table(report: Report) -> Markup | None:
    """Time by cause for the job and each rank (the most different ones of a large job); None without a ledger."""
    job, per_rank = report.ledger.job, report.ledger.per_rank
    causes = [c for c in CAUSES if any(row.get(c, 0.0) > 0 for row in (job, *per_rank.values()))]
    if not causes:
        return None
    named: list[tuple[str, Mapping[str, float]]] = [
        ("job", job),
        *((f"rank {r}", per_rank[r]) for r in heat_ranks(report)),
    ]
    rows = [[name, *(time_words(row.get(c, 0.0)) for c in ("wall_us", *causes))] for name, row in named]
    return table(["", "step", *(CAUSE_WORDS[c] for c in causes)], rows)


def what_if_table(report: Report) -> Markup | None:
    """Every replayed change with the step it gives; None where nothing was replayed."""
    if not report.what_if:
        return None
    step_us = report.steps.wall_us
    rows = [
        [
            item.change,
            time_words(item.predicted_step_us),
            f"{time_words(item.low_us)} to {time_words(item.high_us)}",
            f"{step_us / item.predicted_step_us:.2f}x" if item.predicted_step_us > 0 else "",
        ]
        for item in report.what_if
    ]
    return table(["change", "step after", "range", "speed-up"], [["as measured", format_us(step_us), "", ""], *rows])


def efficiency_table(report: Report) -> Markup | None:
    """The efficiency figures that could be computed, nested ones with a dotted name; None where there are none."""
    rows = [[name, f"{value:.3g}"] for name, value in _flat("", report.efficiency)]
    return table(["figure", "value"], rows) if rows else None


def _flat(prefix: str, values: Mapping[str, Any]) -> list[tuple[str, float]]:
    found: list[tuple[str, float]] = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            found += _flat(f"{prefix}{name}.", value)
        elif isinstance(value, int | float) and value == value:
            found.append((f"{prefix}{name}", float(value)))
    return found


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Markup:
    """A table of text with one header row, scrolling sideways where it is wide."""
    header = tag("tr", *(tag("th", name, scope="col") for name in head))
    body = [tag("tr", *(tag("td", cell) for cell in row)) for row in rows]
    whole = tag("table", tag("thead", header), tag("tbody", *body))
    return tag(
        "div", whole, class_="scroll", tabindex="0", role="region", aria_label="table: " + ", ".join(filter(None, head))
    )
