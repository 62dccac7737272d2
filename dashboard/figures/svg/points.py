"""Points as SVG: steps in time, message size against bandwidth, clock offsets, before and after, curves."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ddprof.dashboard.figures.charts import Bandwidths, Curves, Dots, Dumbbells, Forecasts, Intervals
from ddprof.dashboard.figures.scales import (
    CURVE_COLORS,
    SERIES_COLOR,
    dot_words,
    forecast_range,
    log_ticks,
    short_number,
    spread,
)
from ddprof.dashboard.figures.svg import frame
from ddprof.dashboard.figures.svg.rows import TOP, rows
from ddprof.report.html.markup import Markup, join, tag

LEFT = 66.0
HEIGHT, TALL = 190.0, 280.0  # of the plot, to its lower edge
MAX_TITLED_DOTS = 400  # more would make the file large
MAX_POINTS = 800  # of one series
_MARKS = "●■◆▲✚✖★"


def dots(chart: Dots, words: str) -> Markup:
    """One dot per rank and step, the median dashed; those that stand out are diamonds with their rank beside them."""
    most = max((*chart.values, chart.median)) * 1.08 or 1.0
    y, places = frame.scale(0.0, most, HEIGHT, TOP), spread(chart)
    first, last = min(chart.steps) - 0.5, max(chart.steps) + 0.5
    x = frame.scale(first, last, LEFT, frame.END)
    outliers, names = set(chart.outliers), dot_words(chart)
    plain = [i for i in range(len(places)) if i not in outliers]
    marks = _dots(chart, plain, [(x(places[i]), y(chart.values[i])) for i in plain], names)
    for i in sorted(outliers):
        at_x, at_y = x(places[i]), y(chart.values[i])
        title = tag("title", f"{names[i]}: {chart.values[i]:.4g} ms")
        marks.append(tag("path", title, d=_diamond(at_x, at_y, 5.5), class_="outlier"))
    numbers = sorted(set(chart.steps))
    below = frame.names_below([str(s) for s in numbers], [x(s) for s in numbers], HEIGHT, "step")
    middle = [
        frame.across(LEFT, y(chart.median), "median"),
        frame.across(LEFT, HEIGHT, "axis"),
    ]
    picture = frame.svg(
        HEIGHT + frame.AXIS_HEIGHT, words, *frame.axis_at_left(0.0, most, y, LEFT, "ms"), *middle, *marks, *below
    )
    what = "a step of the job" if chart.ranks is None else "a step of a rank"
    kinds = [("accent", "●", what)] + ([("critical", "◆", "stands out")] if outliers else [])
    return join(picture, frame.legend([*kinds, ("quiet", "–", f"median, {chart.median:.4g} ms")]))


def _dots(
    chart: Dots, which: Sequence[int], places: Sequence[tuple[float, float]], names: Sequence[str]
) -> list[Markup]:
    if len(which) > MAX_TITLED_DOTS:
        return [tag("path", d="".join(f"M{x:.1f} {y:.1f}h0" for x, y in places), class_="dots")]
    return [
        tag(
            "circle",
            tag("title", f"{names[i]}: {chart.values[i]:.4g} ms"),
            cx=round(x, 1),
            cy=round(y, 1),
            r=3.2,
            class_="dot",
        )
        for i, (x, y) in zip(which, places, strict=True)
    ]


def bandwidths(chart: Bandwidths, words: str) -> Markup:
    """Message size against bus bandwidth, logarithmic: one symbol per operation, the reference dashed."""
    all_sizes = [s for sizes, _ in chart.series.values() for s in sizes]
    all_rates = [chart.reference, *(r for _, rates in chart.series.values() for r in rates)]
    x, below = _log_below(all_sizes, "message size (bytes)")
    y, beside = _log_left(all_rates, "bus bandwidth (GB/s)")
    marks, items = [], []
    for number, (name, (sizes, rates)) in enumerate(chart.series.items()):
        color, mark = SERIES_COLOR, number % len(_MARKS)
        every = math.ceil(len(sizes) / MAX_POINTS) or 1
        points = zip(list(sizes)[::every], list(rates)[::every], strict=True)
        outline = "".join(_symbol(mark, x(size), y(rate)) for size, rate in points)
        style = f"fill:var(--{color});stroke:var(--{color});fill-opacity:.65"
        marks.append(tag("path", tag("title", name), d=outline, style=style))
        items.append((color, _MARKS[mark], name))
    reference = frame.across(LEFT, y(chart.reference), "median")
    picture = frame.svg(TALL + frame.AXIS_HEIGHT, words, *beside, *below, reference, *marks)
    return join(picture, frame.legend([*items, ("quiet", "–", chart.words)]))


def _log_below(values: Sequence[float], title: str) -> tuple[frame.Scale, list[Markup]]:
    low, high, ticks = log_ticks(values)
    x = _of_logarithm(frame.scale(low, high, LEFT, frame.END))
    parts = frame.ticks_below([(x(t), short_number(t)) for t in ticks], TALL, TOP)
    return x, [*parts, frame.text(title, (LEFT + frame.END) / 2, TALL + 32, "middle")]


def _log_left(values: Sequence[float], title: str) -> tuple[frame.Scale, list[Markup]]:
    low, high, ticks = log_ticks(values)
    y = _of_logarithm(frame.scale(low, high, TALL, TOP))
    return y, frame.ticks_at_left([(y(t), short_number(t)) for t in ticks], LEFT, title, (TOP + TALL) / 2)


def _of_logarithm(place: frame.Scale) -> frame.Scale:
    return lambda value: place(math.log10(value))


def _symbol(kind: int, x: float, y: float) -> str:
    """Outline of a mark, in the order of _MARKS; the last kinds are strokes."""
    at = f"M{x:.1f} {y:.1f}"
    shapes = (
        "m-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0z",
        "m-3 -3h6v6h-6z",
        "m0 -4l4 4l-4 4l-4 -4z",
        "m0 -4l4 7h-8z",
        "m-4 0h8m-4 -4v8",
        "m-3 -3l6 6m0 -6l-6 6",
        "m-4 0h8m-6 -3.5l4 7m0 -7l-4 7",
    )
    return at + shapes[kind]


def _diamond(x: float, y: float, size: float) -> str:
    return f"M{x:.1f} {y - size:.1f}l{size} {size}l{-size} {size}l{-size} {-size}z"


def intervals(chart: Intervals, words: str) -> Markup:
    """One point per label with its error to both sides, zero marked."""
    ends = [m + side * h for m, h in zip(chart.middle, chart.half, strict=True) for side in (-1, 1)]
    low, high = _padded(min((0.0, *ends)), max((0.0, *ends)))
    place = rows(chart.labels, low, high)
    x = place.x
    marks = [frame.line(x(0.0), TOP, x(0.0), place.bottom, "median")]
    for i, (name, middle, half) in enumerate(zip(chart.labels, chart.middle, chart.half, strict=True)):
        at = place.middle(i)
        title = tag("title", f"{name}: {middle:.4g} ± {half:.4g} {chart.unit}")
        marks.append(frame.line(x(middle - half), at, x(middle + half), at, "whisker"))
        marks.append(tag("circle", title, cx=round(x(middle), 1), cy=at, r=4.5, class_="dot"))
    return place.picture(words, marks, chart.unit)


def _padded(low: float, high: float) -> tuple[float, float]:
    room = (high - low) * 0.04 or 1.0
    return low - room, high + room


def dumbbells(chart: Dumbbells, words: str) -> Markup:
    """Two joined points per label: an open circle before, a filled diamond after."""
    place = rows(chart.labels, 0.0, max((*chart.before, *chart.after, 0.0)) * 1.04 or 1.0)
    x, marks = place.x, list[Markup]()
    for i, (name, before, after) in enumerate(zip(chart.labels, chart.before, chart.after, strict=True)):
        at = place.middle(i)
        title = tag("title", f"{name}: {before:.4g} before, {after:.4g} after, {chart.unit}")
        marks.append(frame.line(x(before), at, x(after), at, "joined"))
        marks.append(tag("circle", title, cx=round(x(before), 1), cy=at, r=5.0, class_="open-dot"))
        marks.append(tag("path", title, d=_diamond(x(after), at, 5.5), class_="dot"))
    return join(
        place.picture(words, marks, chart.unit), frame.legend([("accent", "○", "before"), ("accent", "◆", "after")])
    )


_BESIDE = 0.2  # of a line: predictions lie above its middle, measurements below


def forecasts(chart: Forecasts, words: str) -> Markup:
    """Two points per label with their intervals: an open circle predicted, a filled diamond measured; zero marked."""
    low, high = forecast_range(chart)
    place = rows(chart.labels, low, high)
    x, marks = place.x, [frame.line(place.x(0.0), TOP, place.x(0.0), place.bottom, "median")]
    for kind, estimates, beside in (("predicted", chart.predicted, -_BESIDE), ("measured", chart.measured, _BESIDE)):
        for i, estimate in enumerate(estimates):
            if estimate is None:
                continue
            at, (first, last) = place.middle(i + beside), estimate.ends
            marks.append(frame.line(x(max(first, low)), at, x(min(last, high)), at, f"whisker {kind}"))
            title = tag("title", f"{chart.labels[i]}: {estimate.value:.4g} {kind}, {first:.4g} to {last:.4g}")
            if kind == "predicted":
                marks.append(tag("circle", title, cx=round(x(estimate.value), 1), cy=at, r=4.0, class_="open-dot"))
            else:
                marks.append(tag("path", title, d=_diamond(x(estimate.value), at, 5.0), class_="dot"))
    legend = frame.legend([("quiet", "○", "predicted, with its range"), ("accent", "◆", "measured, with its interval")])
    return join(place.picture(words, marks, chart.unit), legend)


def curves(chart: Curves, words: str) -> Markup:
    """Lines, and a dashed limit where it is known."""
    known = [v for curve in chart.curves for v in curve.y if v is not None]
    most = max((*known, chart.limit or 0.0), default=0.0) * 1.06 or 1.0
    at = [v for curve in chart.curves for v in curve.x]
    low, high = min(at, default=0.0), max(at, default=1.0)
    x, y = frame.scale(low, high, LEFT, frame.END), frame.scale(0.0, most, TALL, TOP)
    marks, items = [], []
    for number, curve in enumerate(chart.curves):
        color = CURVE_COLORS[number % len(CURVE_COLORS)]
        every = math.ceil(len(curve.x) / MAX_POINTS) or 1
        outline = _path(
            [(x(a), None if b is None else y(b)) for a, b in list(zip(curve.x, curve.y, strict=True))[::every]]
        )
        dash = ";stroke-dasharray:2 4" if curve.dotted else ""
        style = f"fill:none;stroke:var(--{color});stroke-width:2{dash}"
        marks.append(tag("path", tag("title", curve.words), d=outline, style=style))
        items.append((color, "┄" if curve.dotted else "━", curve.words))
    if chart.limit is not None:
        marks.append(frame.across(LEFT, y(chart.limit), "limit"))
        items.append(("critical", "–", f"{chart.limit_words}, {chart.limit:.4g}"))
    axes = [
        *frame.axis_at_left(0.0, most, y, LEFT, chart.y_title),
        *frame.axis_below(low, high, x, TALL, chart.x_title, TOP),
    ]
    return join(frame.svg(TALL + frame.AXIS_HEIGHT, words, *axes, *marks), frame.legend(items))


def _path(places: Sequence[tuple[float, float | None]]) -> str:
    """A line through the places, broken where a value is not known."""
    parts, pen = [], "M"
    for x, y in places:
        if y is None:
            pen = "M"
            continue
        parts.append(f"{pen}{x:.1f} {y:.1f}")
        pen = "L"
    return "".join(parts)
