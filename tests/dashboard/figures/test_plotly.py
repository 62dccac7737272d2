"""The figures: one line per name whatever the names are, units where the numbers stand, valid, small, in any theme."""

import hashlib
import html
import json
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest

from ddprof.dashboard.assets import PLOTLY_FILE, PLOTLY_SHA256, PLOTLY_VERSION
from ddprof.dashboard.figures import charts as c
from ddprof.dashboard.figures.plotly.base import LINE_CHARS, MAX_LABEL_CHARS, themed
from ddprof.dashboard.figures.plotly.draw import draw
from ddprof.dashboard.figures.plotly.points import forecast_range, log_ticks, short_number, strengths
from ddprof.report.html.style import DARK, LIGHT

EVIL = "<script>alert(1)</script>&"
PARTS = [
    c.Part("compute", "compute", "compute", [3.0, 1.0]),
    c.Part("comm_wait", "waiting", "comm-wait", [0.0, 2.0]),
    c.Part("dataloader", "data loader", "dataloader", [0.0, 0.0]),
    c.Part("memcpy", "copies", "memcpy", [0.01, 0.0]),
]
STACKED = c.Stacked(["rank 0", "rank 1"], PARTS, "ms")
UPRIGHT = c.Stacked(STACKED.labels, PARTS, "ms", horizontal=False, axis="step")
HEAT = c.Heat(np.array([[1.0, math.nan], [-2.0, -0.0]]), ["a", EVIL], ["rank 0", "rank 1"], "ms", 2.0, diverging=True)
CHARTS: tuple[c.Chart, ...] = (
    *(STACKED, UPRIGHT),
    c.Ranges([EVIL, "b"], [1.0, 3.0], [2.0, 3.0], [4.0, 3.0], "ms"),
    c.Stacked(["under 1 µs", EVIL], [c.Part("", "", "accent", [0.0, 5.0])], "operations", horizontal=False),
    *(HEAT, c.Waterfall(["as recorded", EVIL], [10.0, 8.0], "ms")),
    c.Dots([0, 0, 1, 1], [10.0, 11.0, 10.0, 30.0], 10.5, [0, 1, 0, 1], [3]),
    *(c.Dots([7], [0.0], 0.0), c.Dots([], [], 0.0), c.Bandwidths({}, 1.0, "best")),
    c.Bandwidths({EVIL: ([1e3, 1e6], [0.1, 10.0])}, 10.0, "best"),
    c.Dumbbells(["step", EVIL], [10.0, 0.0], [8.0, 1.0], "ms"),
    c.Forecasts([EVIL], [c.Amount(30.0, 25.0, 35.0)], [None], "%"),
    c.Flame([c.FlameFrame(0, "operator", EVIL, EVIL, "compute", 0.0, 2e3, 2e3, 1.0, 0.5)]),
    c.StageChart([EVIL], [c.TimeBlock(0, 1.0, 2.0, 0, "1", EVIL)], [("forward", "compute", True)], "ms"),
    c.Curves([c.Curve(EVIL, [0.0, 1.0, 2.0], [1.0, None, 3.0], dotted=True)], "ms", "GiB", 4.0, "size"),
)
LONG = "comm.bandwidth_bound: link of the tp groups -> keep these groups inside NVLink, all {} of them"
ALMOST = [LONG.format(i) for i in range(3)]
VALUES = [3.0, 2.0, 1.0]
NAMED: dict[str, Callable[[Sequence[str]], c.Chart]] = {
    "Ranges": lambda names: c.Ranges(names, VALUES, VALUES, VALUES, "ms"),
    "Stacked": lambda names: c.Stacked(names, [c.Part("compute", "compute", "compute", VALUES)], "ms"),
    "Dumbbells": lambda names: c.Dumbbells(names, VALUES, VALUES, "ms"),
}


def test_what_draws_is_what_was_published() -> None:
    script = PLOTLY_FILE.read_bytes()
    assert hashlib.sha256(script).hexdigest() == PLOTLY_SHA256
    assert f"plotly.js (cartesian - minified) v{PLOTLY_VERSION}".encode() in script[:200]
    assert "MIT License" in (PLOTLY_FILE.parent / "LICENSE").read_text(encoding="utf-8")
    sources = (Path(__file__).resolve().parents[3] / "docs" / "sources.md").read_text(encoding="utf-8")
    assert PLOTLY_VERSION in sources and PLOTLY_SHA256 in sources


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: type(chart).__name__)
def test_every_figure_is_valid_json_of_plotly_in_colours_of_the_theme(chart: c.Chart, theme: dict[str, str]) -> None:
    drawn = draw(chart)
    figure = themed(drawn.figure, theme)
    go.Figure(figure)  # raises ValueError for an attribute or a colour that plotly does not know
    assert "var(--" in json.dumps(drawn.figure) and "var(--" not in json.dumps(figure, allow_nan=False)
    shown = json.dumps([{k: v for k, v in trace.items() if k != "customdata"} for trace in drawn.data])
    assert "<script" not in shown and drawn.height_px > 60 and {key.color for key in drawn.legend} <= set(theme)


@pytest.mark.parametrize("names", [["twice", "twice", "<b>once</b>"], ALMOST], ids=["equal", "equal once they are cut"])
@pytest.mark.parametrize("make", NAMED.values(), ids=NAMED)
def test_every_name_has_its_own_line(make: Callable[[Sequence[str]], c.Chart], names: list[str]) -> None:
    drawn = draw(make(names))
    marks = [trace for trace in drawn.data if trace.get("mode") != "lines"]
    assert all(trace["y"] == [0, 1, 2] and trace["x"] == VALUES for trace in marks) and marks
    below = drawn.layout["yaxis"]
    assert below["tickvals"] == [0, 1, 2] and below["range"] == [2.5, -0.5]  # the first on top
    lines = [html.unescape(line) for words in below["ticktext"] for line in words.split("<br>")]
    assert max(len(line) for line in lines) <= LINE_CHARS
    assert all(words.count("<br>") <= 1 and "<b>" not in words for words in below["ticktext"])
    told = [line[0] if isinstance(line, list) else line for line in marks[0]["customdata"]]
    assert all(len(html.unescape(words)) <= MAX_LABEL_CHARS for words in told)


@pytest.mark.parametrize(("chart", "amounts"), [(STACKED, "x"), (UPRIGHT, "y")], ids=["lying", "upright"])
def test_bars_are_solid_and_have_a_letter_where_there_is_room(chart: c.Stacked, amounts: str) -> None:
    drawn = draw(chart)
    bars = {trace["name"]: trace for trace in drawn.data}
    assert list(bars) == ["compute", "waiting", "copies"]  # nothing is drawn of what is zero everywhere
    assert bars["compute"][amounts] == [3.0, 1.0] and bars["compute"]["text"] == ["C", "C"]
    assert bars["waiting"]["text"] == ["", "W"] and bars["copies"]["text"] == ["", ""]
    assert [(key.mark, key.color) for key in drawn.legend] == [("C", "compute"), ("W", "comm-wait"), ("M", "memcpy")]
    assert [bar["marker"]["color"] for bar in drawn.data] == [f"var(--{key.color})" for key in drawn.legend]


def test_whiskers_span_the_range_and_a_waterfall_ends_where_the_last_change_does() -> None:
    whisker = draw(CHARTS[2]).data[0]["error_x"]
    assert whisker["array"] == [2.0, None] and whisker["arrayminus"] == [1.0, None]
    bars = draw(c.Waterfall(["now", "less", "more"], [10.0, 7.0, 9.0], "ms")).data[0]
    assert bars["base"] == [0.0, 7.0, 7.0, 0.0] and bars["y"] == [10.0, 3.0, 2.0, 9.0]
    assert bars["text"] == ["10", "-3", "+2", "9"]
    assert bars["marker"]["color"] == ["var(--accent)", "var(--good)", "var(--critical)", "var(--accent)"]


def test_a_heatmap_says_what_colours_mean_has_numbers_that_can_be_read_and_small_ones_stay_pale() -> None:
    drawn = draw(c.Heat(np.array([[1.0, 2.0]]), ["0", "1"], ["rank 0"], "µs", 4.0, axis="step"))
    assert drawn.layout["xaxis"]["title"]["text"] == "step"
    assert [key.words for key in drawn.legend] == ["0 µs", "4 µs or more"]
    assert [key.words for key in draw(HEAT).legend] == ["-2 ms or less", "0 ms", "+2 ms or more"]
    cells, numbers = draw(HEAT).data
    assert cells["z"] == [[0.5, None], [-1.0, 0.0]]
    assert numbers["text"] == ["1.00", "-2.00", "0.00"] and numbers["y"] == ["rank 0", "rank 1", "rank 1"]
    assert set(numbers["x"]) <= set(cells["x"])
    many = draw(c.Heat(np.ones((40, 40)), [*map(str, range(40))], [*map(str, range(40))], "ms", 2.0))
    assert len(many.data) == 1 and many.least_width_px is None
    low, tall = (draw(c.Heat(np.ones((4, 3)), ["a", "b", end], [*"0123"], "%", 9.0)).layout for end in ("c", "c" * 20))
    assert low["yaxis"]["dtick"] == 1 and tall["height"] > low["height"] + 60  # lines keep theirs beside long names
    # A tenth of what is critical gets a tenth of the colour, and what is beyond it no more than all.
    chart = c.Heat(np.array([[1.0, -30.0]]), ["a", "b"], ["rank 0"], "%", 10.0, diverging=True)
    assert strengths(chart).tolist() == [[0.1, -1.0]]
    cells = draw(chart).data[0]
    assert (cells["zmin"], cells["zmax"], cells["z"][0]) == (-1.0, 1.0, [0.1, -1.0])


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("color", ["heat-more", "heat-less", "ground"])
def test_numbers_on_cells_can_be_read_in_both_themes(theme: dict[str, str], color: str) -> None:
    bright, dim = sorted((_light(theme["text"]), _light(theme[color])), reverse=True)
    assert (bright + 0.05) / (dim + 0.05) >= 4.5


def _light(color: str) -> float:
    """Relative luminance as WCAG defines it."""
    digits = color.lstrip("#")
    six = digits if len(digits) == 6 else "".join(digit * 2 for digit in digits)
    parts = [int(part, 16) / 255 for part in re.findall("..", six)]
    linear = [x / 12.92 if x <= 0.03928 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_long_steps_are_told_in_seconds() -> None:
    drawn = draw(c.Dots([0, 1], [50_000.0, 51_000.0], 50_500.0, None, [1]))
    assert drawn.layout["yaxis"]["title"]["text"] == "s" and drawn.layout["shapes"][0]["y0"] == pytest.approx(50.5)
    assert [trace["y"] for trace in drawn.data] == [[50.0], [51.0]]
    assert [key.words for key in drawn.legend] == ["a step of the job", "stands out", "median, 50.5 s"]


def test_the_reference_is_seen_where_all_messages_have_one_size_and_ticks_are_round() -> None:
    drawn = draw(c.Bandwidths({"all_reduce": ([1e6, 1e6], [10.0, 10.0])}, 10.0, "best"))
    line = next(trace for trace in drawn.data if trace["mode"] == "lines")
    low, high = drawn.layout["xaxis"]["range"]
    assert [math.log10(x) for x in line["x"]] == pytest.approx([low, high]) and high - low > 0.5
    assert all(len(drawn.layout[axis]["tickvals"]) >= 2 for axis in ("xaxis", "yaxis"))
    low, high, ticks = log_ticks([1e3, 1e6])
    assert ticks == pytest.approx([1e3, 1e4, 1e5, 1e6]) and low < 3 and high > 6
    assert [short_number(v) for v in (2e3, 5e6, 0.5, -4e9)] == ["2k", "5M", "0.5", "-4G"]


def test_predictions_stand_beside_what_was_measured_whose_interval_may_say_nothing() -> None:
    predicted = (c.Amount(30.0, 25.0, 35.0), c.Amount(10.0, 5.0, 15.0))
    measured = [c.Amount(28.0, 26.0, 30.0), None, c.Amount(1.0, None, None)]
    foretold, seen = draw(c.Forecasts(["a", "b", "c"], [*predicted, None], measured, "%")).data
    assert foretold["x"] == [30.0, 10.0] and seen["x"] == [28.0, 1.0]
    assert [round(y) for y in foretold["y"]] == [0, 1] and [round(y) for y in seen["y"]] == [0, 2]
    assert seen["error_x"]["array"] == seen["error_x"]["arrayminus"] == [2.0, 0.0]
    vague = c.Forecasts(["a", "b"], predicted, [c.Amount(28.0, -900.0, 97.0), None], "%")
    low, high = forecast_range(vague)
    assert -20 < low < 0 and 50 < high < 55 and draw(vague).layout["xaxis"]["range"] == [low, high]
    assert forecast_range(c.Forecasts(["a"], [None], [None], "%")) == (-0.04, 0.04)


def test_large_pictures_stay_small() -> None:
    random, steps, ranks = np.random.default_rng(3), [*map(str, range(200))], [f"rank {i}" for i in range(32)]
    heat = c.Heat(random.normal(size=(32, 200)), steps, ranks, "ms", 1.5, diverging=True, axis="step")
    parts = [c.Part(f"p{i}", f"part {i}", "compute", random.random(200).tolist()) for i in range(8)]
    dots = c.Dots(list(range(2000)), random.random(2000).tolist(), 0.5, [0] * 2000)
    for chart, most in ((heat, 150_000), (c.Stacked(steps, parts, "ms", horizontal=False), 120_000), (dots, 90_000)):
        assert len(json.dumps(draw(chart).figure, separators=(",", ":"))) < most
