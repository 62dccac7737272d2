"""Charts as SVG: lengths and places are the numbers', texts are escaped, large pictures stay small."""

from __future__ import annotations

import itertools
import math
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from ddprof.dashboard.figures.charts import (
    Bandwidths,
    Chart,
    Columns,
    Curve,
    Curves,
    Dots,
    Dumbbells,
    Heat,
    Intervals,
    Part,
    Ranges,
    Stacked,
)
from ddprof.dashboard.figures.scales import linear_ticks, log_ticks, short_number
from ddprof.dashboard.figures.svg.draw import draw
from ddprof.dashboard.figures.svg.frame import CHAR, WIDTH

EVIL = "<script>alert(1)</script>&"
STACKED = Stacked(
    ["rank 0", "rank 1"],
    [Part("compute", "compute", "compute", [3.0, 1.0]), Part("comm_wait", "waiting", "comm-wait", [0.0, 2.0])],
    "ms",
)
CHARTS: tuple[Chart, ...] = (
    STACKED,
    Stacked(STACKED.labels, STACKED.parts, "ms", horizontal=False, axis="step"),
    Ranges([EVIL, "b"], [1.0, 2.0], [2.0, 3.0], [3.0, 5.0], "ms"),
    Columns(["under 1 µs", EVIL], [0.0, 5.0], "operations"),
    Heat(np.array([[1.0, math.nan], [-2.0, 0.0]]), ["a", EVIL], ["rank 0", "rank 1"], "ms", 2.0, diverging=True),
    Dots([0, 0, 1, 1], [10.0, 11.0, 10.0, 30.0], 10.5, [0, 1, 0, 1], [3]),
    Dots([7], [0.0], 0.0),
    Bandwidths({EVIL: ([1e3, 1e6], [0.1, 10.0])}, 10.0, "best"),
    Intervals([EVIL, "b"], [0.0, 12.0], [0.0, 3.0], "µs"),
    Dumbbells(["step", EVIL], [10.0, 0.0], [8.0, 1.0], "ms"),
    Curves([Curve(EVIL, [0.0, 1.0, 2.0], [1.0, None, 3.0], dotted=True)], "ms", "GiB", 4.0, "size"),
)


def _drawn(chart: Chart) -> ET.Element:
    """The picture and its legend, parsed: it is well formed or the test ends here."""
    return ET.fromstring(f"<div>{draw(chart, 'what it shows')}</div>")


@pytest.mark.parametrize("chart", CHARTS, ids=lambda c: type(c).__name__)
def test_every_chart_is_drawn_inside_its_box_and_says_what_it_is(chart: Chart) -> None:
    root = _drawn(chart)
    picture = root.find("svg")
    assert picture is not None and picture.get("aria-label") == "what it shows"
    _, _, width, height = map(float, (picture.get("viewBox") or "").split())
    for mark in picture:
        for name, most in (("x", width), ("cx", width), ("x1", width), ("y", height), ("cy", height), ("y1", height)):
            place = mark.get(name)
            assert place is None or -0.5 <= float(place) <= most + 0.5, (mark.tag, name, place)
    assert "nan" not in ET.tostring(root, encoding="unicode")
    assert root.find(".//script") is None


def _rectangles(chart: Chart) -> list[tuple[str, float, float]]:
    """(title, width, height) of every bar or cell."""
    found = _drawn(chart).findall(".//rect")
    return [(r.findtext("title") or "", float(r.get("width") or 0), float(r.get("height") or 0)) for r in found]


def test_lying_bars_are_as_long_as_their_amounts() -> None:
    bars = {title: width for title, width, _ in _rectangles(STACKED)}
    assert set(bars) == {"rank 0, compute: 3 ms", "rank 1, compute: 1 ms", "rank 1, waiting: 2 ms"}
    unit = bars["rank 1, compute: 1 ms"]
    assert bars["rank 0, compute: 3 ms"] == pytest.approx(3 * unit, abs=0.3)
    assert bars["rank 1, waiting: 2 ms"] == pytest.approx(2 * unit, abs=0.3)


def test_standing_bars_are_as_tall_as_their_amounts() -> None:
    bars = {title: height for title, _, height in _rectangles(CHARTS[1])}
    assert bars["rank 0, compute: 3 ms"] == pytest.approx(3 * bars["rank 1, compute: 1 ms"], abs=0.3)


def test_the_whisker_spans_the_range() -> None:
    chart = Ranges(["a"], [1.0], [2.0], [4.0], "ms")
    (_, bar, _), *_ = _rectangles(chart)
    whisker = next(w for w in _drawn(chart).findall(".//line[@class='whisker']") if w.get("y1") == w.get("y2"))
    assert float(whisker.get("x2") or 0) - float(whisker.get("x1") or 0) == pytest.approx(bar * 1.5, abs=0.3)


def test_shades_follow_the_numbers_and_what_is_not_known_has_no_cell() -> None:
    cells = _drawn(CHARTS[4]).findall(".//rect")
    styles = {(c.findtext("title") or "").split(": ")[1]: c.get("style") or "" for c in cells}
    assert len(cells) == 3
    strength = {value: float(re.findall(r"fill-opacity:([\d.]+)", style)[0]) for value, style in styles.items()}
    assert strength["1 ms"] == pytest.approx(strength["-2 ms"] / 2) and strength["0 ms"] == 0.0
    assert "var(--critical)" in styles["1 ms"] and "var(--quiet)" in styles["-2 ms"]


def test_large_pictures_stay_small() -> None:
    random = np.random.default_rng(3)
    steps = [str(i) for i in range(200)]
    lines = [f"rank {i}" for i in range(32)]
    heat = Heat(random.normal(size=(32, 200)), steps, lines, "ms", 1.5, diverging=True, axis="step")
    parts = [Part(f"p{i}", f"part {i}", "compute", random.random(200).tolist()) for i in range(8)]
    dots = Dots(list(range(2000)), random.random(2000).tolist(), 0.5, [0] * 2000)
    for chart, most in ((heat, 400_000), (Stacked(steps, parts, "ms", horizontal=False), 120_000), (dots, 60_000)):
        assert len(draw(chart, "x")) < most


def test_labels_below_do_not_touch() -> None:
    names = [f"{i}" for i in range(1000, 1200)]
    root = _drawn(Columns(names, [1.0] * 200, "operations"))
    shown = [(float(t.get("x") or 0), t.text or "") for t in root.findall(".//text") if (t.text or "") in set(names)]
    assert 5 < len(shown) < 60
    assert all(b[0] - a[0] >= len(a[1]) * CHAR for a, b in itertools.pairwise(shown))
    assert all(0 <= x <= WIDTH for x, _ in shown)


def test_ticks_are_round_and_inside() -> None:
    assert linear_ticks(0.0, 10.0) == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
    assert linear_ticks(0.0, 0.31, 3) == pytest.approx([0.0, 0.2])
    assert linear_ticks(5.0, 5.0) == [5.0]
    assert linear_ticks(-3.0, 3.0, 3) == pytest.approx([-2.0, 0.0, 2.0])
    low, high, ticks = log_ticks([1e3, 1e6])
    assert ticks == pytest.approx([1e3, 1e4, 1e5, 1e6]) and low < 3 and high > 6
    assert [short_number(v) for v in (2e3, 5e6, 0.5, -4e9)] == ["2k", "5M", "0.5", "-4G"]
