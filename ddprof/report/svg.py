"""The report's pictures as inline SVG: the step as a stacked bar, steps as dots, ranks x causes as a heatmap."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from ddprof.report.bar import LOOKS, shares
from ddprof.report.deviation import deviation
from ddprof.report.markup import Markup, join, tag
from ddprof.report.model import CAUSES, Report
from ddprof.report.phrases import CAUSE_WORDS
from ddprof.report.style import colour
from ddprof.units import format_share, format_us

MAX_HEAT_RANKS = 64
NAMED_MARK = " ◀"  # behind a rank that a finding names
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
    """Ranks x causes: the number is the percent of the rank's step, the colour how far it is from the median rank's.

    None without a ledger.
    """
    found = deviation(report)
    if found is None:
        return None
    left, top, wide, high = 84.0, 30.0, 476.0 / len(found.causes), 20.0
    parts = [
        tag(
            "text",
            LOOKS[c].letter,
            tag("title", CAUSE_WORDS[c]),
            x=left + wide * (i + 0.5),
            y=20.0,
            text_anchor="middle",
        )
        for i, c in enumerate(found.causes)
    ]
    for line, rank in enumerate(found.ranks):
        y = top + high * line
        words = f"rank {rank}" + (NAMED_MARK if rank in found.named else "")
        parts.append(tag("text", words, x=left - 8, y=y + 14, text_anchor="end"))
        for i, cause in enumerate(found.causes):
            percent, points = found.percent[line][i], found.points[line][i]
            words = f"rank {rank}, {CAUSE_WORDS[cause]}: {percent:.1f} %, {points:+.1f} points off the median"
            strength = abs(points) / found.scale_points
            parts.append(_heat_cell(words, percent, points > 0, strength, left + wide * i, y, wide, high))
    label = f"Share of each rank's step by cause, {len(found.ranks)} ranks"
    return _svg(left + 476.0, top + high * len(found.ranks) + 4, label, *parts)


def _heat_cell(
    words: str, percent: float, above: bool, strength: float, x: float, y: float, wide: float, high: float
) -> Markup:
    side = colour("comm_transfer" if above else "compute")
    shade = f"fill:{side};fill-opacity:{0.55 * strength:.3f}"  # the number on it stays readable
    cell = tag("rect", tag("title", words), x=x + 1, y=y + 1, width=wide - 2, height=high - 2, style=shade)
    number = tag("text", f"{percent:.0f}", x=x + wide / 2, y=y + 14, text_anchor="middle")
    return join(cell, number if percent >= 0.5 and wide >= 30 else None)


def _svg(width: float, height: float, label: str, *children: Markup) -> Markup:
    return tag("svg", *children, viewBox=f"0 0 {width:g} {height:g}", role="img", aria_label=label)
