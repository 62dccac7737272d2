"""The report's pictures as inline SVG: the step as a stacked bar, steps as dots, ranks x causes as a heatmap."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from ddprof.report.bar import LOOKS, shares
from ddprof.report.markup import Markup, join, tag
from ddprof.report.model import CAUSES, Report
from ddprof.report.phrases import CAUSE_WORDS
from ddprof.report.style import colour
from ddprof.units import format_share, format_us

MAX_HEAT_RANKS = 64
_MAX_DOTS = 1000
_BAR_WIDTH = 1000.0
_LEAST_LETTER_WIDTH = 14.0


def step_bar(row: Mapping[str, float], label: str, height: float = 34.0) -> Markup:
    """A ledger row as one stacked bar; each part has its letter and, on hover, its words."""
    parts, at = [], 0.0
    for cause, share in shares(row).items():
        width = share * _BAR_WIDTH
        title = tag("title", f"{CAUSE_WORDS[cause]}: {format_us(row[cause])}, {format_share(share)}")
        parts.append(tag("rect", title, x=at, y=0.0, width=width, height=height, style=f"fill:{colour(cause)}"))
        if width >= _LEAST_LETTER_WIDTH:
            letter = LOOKS[cause].letter
            parts.append(tag("text", letter, x=at + width / 2, y=height / 2 + 4, text_anchor="middle", class_="on-bar"))
        at += width
    return _svg(_BAR_WIDTH, height, label, *parts)


def legend(row: Mapping[str, float]) -> Markup:
    """The bar's causes with letter, words, time and share."""
    items = [
        tag(
            "li",
            tag("span", LOOKS[cause].letter, class_="swatch", style=f"background:{colour(cause)}"),
            f"{CAUSE_WORDS[cause]} {format_us(row[cause])} ({format_share(share)})",
        )
        for cause, share in shares(row).items()
    ]
    return tag("ul", *items, class_="legend")


def step_dots(per_step_us: Sequence[float]) -> Markup | None:
    """One dot per step, the median dashed; None without a step. Above 1000 steps every k-th is drawn."""
    known = [(index, value) for index, value in enumerate(per_step_us) if math.isfinite(value)]
    if not known:
        return None
    every = math.ceil(len(known) / _MAX_DOTS)
    top = max(value for _, value in known) * 1.05
    median = statistics.median(value for _, value in known)
    width, height, left = 560.0, 170.0, 70.0
    span = max(len(per_step_us) - 1, 1)

    def y(value: float) -> float:
        return 10 + (height - 40) * (1 - value / top) if top > 0 else height - 30

    dots = [
        tag(
            "circle",
            tag("title", f"step {index}: {format_us(value)}"),
            cx=left + 14 + (width - left - 30) * index / span,
            cy=y(value),
            r=4.0,
            class_="dot",
        )
        for index, value in known[::every]
    ]
    axes = [
        tag("line", x1=left, x2=width, y1=height - 30, y2=height - 30, class_="axis"),
        tag("line", x1=left, x2=width, y1=y(median), y2=y(median), class_="median"),
        tag("text", "0", x=left - 8, y=height - 26, text_anchor="end"),
        tag("text", format_us(median), x=left - 8, y=y(median) + 4, text_anchor="end"),
        tag("text", "step", x=(left + width) / 2, y=height - 8, text_anchor="middle"),
    ]
    return _svg(width, height, f"Time of each of {len(known)} steps; median {format_us(median)}", *axes, *dots)


def heat_ranks(report: Report) -> list[int]:
    """The ranks worth drawing: all of them, or the 64 whose ledger differs most from the job's."""
    per_rank, job = report.ledger.per_rank, report.ledger.job
    if len(per_rank) <= MAX_HEAT_RANKS:
        return sorted(per_rank)

    def distance(rank: int) -> float:
        return sum(abs(per_rank[rank].get(cause, 0.0) - job.get(cause, 0.0)) for cause in CAUSES)

    return sorted(sorted(per_rank, key=distance, reverse=True)[:MAX_HEAT_RANKS])


def heatmap(report: Report) -> Markup | None:
    """Ranks x causes, opacity = share of the rank's step; None without a ledger."""
    ranks = heat_ranks(report)
    by_rank = {rank: shares(report.ledger.per_rank[rank]) for rank in ranks}
    causes = [c for c in CAUSES if any(by_rank[rank].get(c, 0.0) >= 0.005 for rank in ranks)]
    if not causes:
        return None
    left, top, wide, high = 70.0, 30.0, 490.0 / len(causes), 20.0
    parts = [
        tag(
            "text",
            LOOKS[c].letter,
            tag("title", CAUSE_WORDS[c]),
            x=left + wide * (i + 0.5),
            y=20.0,
            text_anchor="middle",
        )
        for i, c in enumerate(causes)
    ]
    for line, rank in enumerate(ranks):
        y = top + high * line
        parts.append(tag("text", f"rank {rank}", x=left - 8, y=y + 14, text_anchor="end"))
        parts += [
            _heat_cell(rank, cause, by_rank[rank].get(cause, 0.0), left + wide * i, y, wide, high)
            for i, cause in enumerate(causes)
        ]
    label = f"Share of each rank's step by cause, {len(ranks)} ranks"
    return _svg(left + 490.0, top + high * len(ranks) + 4, label, *parts)


def _heat_cell(rank: int, cause: str, share: float, x: float, y: float, wide: float, high: float) -> Markup:
    title = tag("title", f"rank {rank}, {CAUSE_WORDS[cause]}: {format_share(share)}")
    shade = f"fill:{colour(cause)};fill-opacity:{min(share, 1.0):.3f}"
    cell = tag("rect", title, x=x + 1, y=y + 1, width=wide - 2, height=high - 2, style=shade)
    number = tag("text", f"{share * 100:.0f}", x=x + wide / 2, y=y + 14, text_anchor="middle")
    return join(cell, number if share >= 0.005 and wide >= 30 else None)


def _svg(width: float, height: float, label: str, *children: Markup) -> Markup:
    return tag("svg", *children, viewBox=f"0 0 {width:g} {height:g}", role="img", aria_label=label)
