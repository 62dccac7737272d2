"""The plotly figures: one line per name whatever the names are, units where the numbers stand, a line that is seen."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from ddprof.dashboard.figures.charts import (
    Amount,
    Bandwidths,
    Chart,
    Dumbbells,
    Forecasts,
    Heat,
    Intervals,
    Part,
    Ranges,
    Stacked,
)
from ddprof.dashboard.figures.plotly.base import LIGHT, LINE_CHARS, MAX_LABEL_CHARS
from ddprof.dashboard.figures.plotly.draw import draw
from ddprof.dashboard.figures.scales import forecast_range, strengths
from ddprof.dashboard.figures.svg.draw import draw as draw_svg

LONG = "comm.bandwidth_bound: link of the tp groups -> keep these groups inside NVLink, all {} of them"
SAME = ["twice", "twice", "<b>once</b>"]
ALMOST = [LONG.format(i) for i in range(3)]
VALUES = [3.0, 2.0, 1.0]


@pytest.mark.parametrize("names", [SAME, ALMOST], ids=["equal", "equal once they are cut"])
@pytest.mark.parametrize(
    "make",
    [
        lambda names: Ranges(names, VALUES, VALUES, VALUES, "ms"),
        lambda names: Stacked(names, [Part("compute", "compute", "compute", VALUES)], "ms"),
        lambda names: Intervals(names, VALUES, VALUES, "µs"),
        lambda names: Dumbbells(names, VALUES, VALUES, "ms"),
    ],
    ids=["Ranges", "Stacked", "Intervals", "Dumbbells"],
)
def test_every_name_has_its_own_line(make: Callable[[Sequence[str]], Chart], names: list[str]) -> None:
    drawn = draw(make(names), LIGHT)
    marks = [trace for trace in drawn.data if trace.to_plotly_json().get("mode") != "lines"]
    assert all(list(trace.y) == [0, 1, 2] and list(trace.x) == VALUES for trace in marks) and marks
    assert list(drawn.layout.yaxis.tickvals) == [0, 1, 2]
    assert list(drawn.layout.yaxis.range) == [2.5, -0.5]  # the first on top
    lines = [html.unescape(line) for words in drawn.layout.yaxis.ticktext for line in words.split("<br>")]
    assert max(len(line) for line in lines) <= LINE_CHARS
    assert all(words.count("<br>") <= 1 and "<b>" not in words for words in drawn.layout.yaxis.ticktext)
    assert all(len(html.unescape(words)) <= MAX_LABEL_CHARS for words in marks[0].customdata)


def test_numbers_on_cells_have_their_unit() -> None:
    values = np.array([[1.0, 2.0]])
    drawn = draw(Heat(values, ["0", "1"], ["rank 0"], "µs", 4.0, axis="step"), LIGHT)
    assert drawn.layout.xaxis.title.text == "step; cells: µs, full colour from 4" and drawn.data[0].showscale is False
    alone = draw(Heat(values, ["a", "b"], ["rank 0"], "%", 10.0), LIGHT)
    assert alone.layout.xaxis.title.text == "cells: %, full colour from 10"
    many = draw(Heat(np.ones((40, 40)), [str(i) for i in range(40)], [str(i) for i in range(40)], "ms", 2.0), LIGHT)
    assert many.data[0].colorbar.title.text == "ms" and many.data[0].showscale is True


def test_a_small_difference_stays_pale_however_small_the_largest_is() -> None:
    """A tenth of what is critical gets a tenth of the colour, and what is beyond it no more than all."""
    chart = Heat(np.array([[1.0, -30.0]]), ["a", "b"], ["rank 0"], "%", 10.0, diverging=True)
    assert strengths(chart).tolist() == [[0.1, -1.0]]
    cells = draw(chart, LIGHT).data[0]
    assert (cells.zmin, cells.zmax, cells.z[0]) == (-1.0, 1.0, [0.1, -1.0])


def test_the_reference_is_seen_where_all_messages_have_one_size() -> None:
    drawn = draw(Bandwidths({"all_reduce": ([1e6, 1e6], [10.0, 10.0])}, 10.0, "best"), LIGHT)
    line = next(trace for trace in drawn.data if trace.mode == "lines")
    low, high = drawn.layout.xaxis.range
    assert [math.log10(x) for x in line.x] == pytest.approx([low, high])
    assert high - low > 0.5
    for axis in (drawn.layout.xaxis, drawn.layout.yaxis):
        assert len(axis.tickvals) >= 2


PREDICTED = (Amount(30.0, 25.0, 35.0), Amount(10.0, 5.0, 15.0))


def test_predictions_stand_beside_what_was_measured() -> None:
    chart = Forecasts(["a", "b"], [*PREDICTED, None], [Amount(28.0, 26.0, 30.0), None, Amount(1.0, None, None)], "%")
    drawn = draw(Forecasts(["a", "b", "c"], chart.predicted, chart.measured, "%"), LIGHT)
    foretold, found = drawn.data
    assert list(foretold.x) == [30.0, 10.0] and list(found.x) == [28.0, 1.0]
    assert [round(y) for y in foretold.y] == [0, 1] and [round(y) for y in found.y] == [0, 2]
    assert list(found.error_x.array) == [2.0, 0.0] and list(found.error_x.arrayminus) == [2.0, 0.0]
    picture = draw_svg(Forecasts(["a", "b", "c"], chart.predicted, chart.measured, "%"), "words")
    assert picture.count("<circle") == 2 and "a: 28 measured, 26 to 30" in picture


def test_an_interval_that_says_nothing_leaves_half_of_the_axis_to_the_others() -> None:
    vague = Forecasts(["a", "b"], PREDICTED, [Amount(28.0, -900.0, 97.0), None], "%")
    low, high = forecast_range(vague)
    assert -20 < low < 0 and 50 < high < 55
    assert forecast_range(Forecasts(["a"], [None], [None], "%")) == (-0.04, 0.04)
    picture = draw_svg(vague, "words")
    ends = [float(part.split('"')[1]) for part in picture.split("x1=")[1:]]
    assert min(ends) >= 0
