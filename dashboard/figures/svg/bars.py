"""Bars as SVG: stacked parts with a letter each, amounts with their range, upright bars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ddprof.causes import CAUSES
from ddprof.dashboard.figures.charts import Columns, Part, Ranges, Stacked
from ddprof.dashboard.figures.svg import frame
from ddprof.dashboard.figures.svg.rows import rows
from ddprof.report.html.markup import Markup, join, tag

BAR = 17.0  # height of a lying bar
UPRIGHT_HEIGHT, UPRIGHT_LEFT = 250.0, 66.0
LEAST_LETTER_WIDTH = 13.0
MAX_TITLED_BARS = 400  # more would make the file large: one path per part, the numbers are in the table


def stacked(chart: Stacked, words: str) -> Markup:
    """One bar per label, stacked by part, and a legend."""
    parts = chart.drawn_parts
    totals = [sum(max(0.0, part.values[i]) for part in parts) for i in range(len(chart.labels))]
    picture = _lying(chart, parts, totals, words) if chart.horizontal else _standing(chart, parts, totals, words)
    return join(picture, frame.legend([(p.color, _letter(p), p.words) for p in parts]))


def _letter(part: Part) -> str:
    """The mark of a part; none on the ground that is left over, which is too pale for one."""
    if part.color == "line":
        return ""
    look = CAUSES.get(part.key)
    return look.letter if look else part.words[:1].upper()


def _lying(chart: Stacked, parts: Sequence[Part], totals: Sequence[float], words: str) -> Markup:
    place = rows(chart.labels, 0.0, (max(totals, default=0.0) or 1.0) * 1.02)
    x = place.x
    spans = [(i, part, at, at + part.values[i]) for i in range(len(totals)) for part, at in _starts(parts, i)]
    bars = [_bar(chart, part, i, x(a), place.middle(i) - BAR / 2, x(b) - x(a), BAR) for i, part, a, b in spans]
    return place.picture(words, _thinned(bars), chart.unit)


def _standing(chart: Stacked, parts: Sequence[Part], totals: Sequence[float], words: str) -> Markup:
    bottom, most = UPRIGHT_HEIGHT, max(totals, default=0.0) or 1.0
    y = frame.scale(0.0, most * 1.04, bottom, 8.0)
    centers, wide = _places(len(chart.labels))
    spans = [(i, part, at, at + part.values[i]) for i in range(len(totals)) for part, at in _starts(parts, i)]
    bars = [_bar(chart, part, i, centers[i] - wide / 2, y(b), wide, y(a) - y(b)) for i, part, a, b in spans]
    axis = frame.axis_at_left(0.0, most * 1.04, y, UPRIGHT_LEFT, chart.unit)
    below = frame.names_below(chart.labels, centers, bottom, chart.axis)
    return frame.svg(bottom + frame.AXIS_HEIGHT, words, *axis, *_thinned(bars), *below)


def _starts(parts: Sequence[Part], place: int) -> list[tuple[Part, float]]:
    """The parts of one bar that are not zero, each with the amount that lies before it."""
    found, at = [], 0.0
    for part in parts:
        if part.values[place] > 0:
            found.append((part, at))
            at += part.values[place]
    return found


def _places(count: int) -> tuple[list[float], float]:
    """Middles of upright bars, and their width."""
    room = (frame.END - UPRIGHT_LEFT) / max(1, count)
    return [UPRIGHT_LEFT + room * (i + 0.5) for i in range(count)], min(70.0, room * 0.78)


class _Drawn(NamedTuple):
    """A bar: its part, its outline as a path, and the element with title and letter."""

    part: Part
    outline: str
    body: Markup


def _bar(chart: Stacked, part: Part, place: int, x: float, y: float, width: float, height: float) -> _Drawn:
    said = f"{chart.labels[place]}, {part.words}: {part.values[place]:.4g} {chart.unit}"
    places = {"x": x, "y": y, "width": width, "height": height}
    body = tag("rect", tag("title", said), **{k: round(v, 1) for k, v in places.items()}, style=_fill(part.color))
    fits = width >= LEAST_LETTER_WIDTH and height >= LEAST_LETTER_WIDTH
    middle = {"x": round(x + width / 2, 1), "y": round(y + height / 2 + 4, 1)}
    letter = tag("text", _letter(part), **middle, text_anchor="middle", class_="on-bar") if fits else None
    return _Drawn(part, frame.box(x, y, width, height), join(body, letter))


def _thinned(bars: Sequence[_Drawn]) -> list[Markup]:
    """The bars; above MAX_TITLED_BARS one path per part, without titles and letters."""
    if len(bars) <= MAX_TITLED_BARS:
        return [bar.body for bar in bars]
    paths: dict[str, list[str]] = {}
    for bar in bars:
        paths.setdefault(bar.part.color, []).append(bar.outline)
    return [tag("path", d="".join(outlines), style=_fill(color)) for color, outlines in paths.items()]


def _fill(color: str) -> str:
    return f"fill:var(--{color})"


def ranges(chart: Ranges, words: str) -> Markup:
    """One bar per label with a whisker from low to high."""
    place = rows(chart.labels, 0.0, max((*chart.high, *chart.value, 0.0)) * 1.02 or 1.0)
    x, marks = place.x, list[Markup]()
    for i, (name, low, value, high) in enumerate(zip(chart.labels, chart.low, chart.value, chart.high, strict=True)):
        middle = place.middle(i)
        title = tag("title", f"{name}: {value:.4g} ({low:.4g} to {high:.4g}) {chart.unit}")
        length = max(0.0, x(max(value, 0.0)) - place.left)
        bar = {"x": place.left, "y": middle - BAR / 2, "width": length, "height": BAR}
        marks.append(tag("rect", title, **{k: round(v, 1) for k, v in bar.items()}, class_="amount"))
        if high > low:
            ends = (frame.line(x(end), middle - 5, x(end), middle + 5, "whisker") for end in (low, high))
            marks += [frame.line(x(low), middle, x(high), middle, "whisker"), *ends]
    return place.picture(words, marks, chart.unit)


def columns(chart: Columns, words: str) -> Markup:
    """One upright bar per label."""
    bottom, most = UPRIGHT_HEIGHT, max(chart.values, default=0.0) * 1.04 or 1.0
    y = frame.scale(0.0, most, bottom, 8.0)
    centers, wide = _places(len(chart.labels))
    bars = [
        tag(
            "rect",
            tag("title", f"{name}: {value:.4g} {chart.unit}"),
            x=round(at - wide / 2, 1),
            y=round(y(value), 1),
            width=round(wide, 1),
            height=round(bottom - y(value), 1),
            class_="amount",
        )
        for name, value, at in zip(chart.labels, chart.values, centers, strict=True)
    ]
    axis = frame.axis_at_left(0.0, most, y, UPRIGHT_LEFT, chart.unit)
    return frame.svg(bottom + frame.AXIS_HEIGHT, words, *axis, *bars, *frame.names_below(chart.labels, centers, bottom))
