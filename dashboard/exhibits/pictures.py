"""Charts of all pages as plotly figures, by name, for notebooks."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddprof.dashboard.exhibits.catalogue import SUBJECTS
from ddprof.dashboard.exhibits.parts.exhibit import Exhibit
from ddprof.dashboard.figures.plotly.base import plain, themed
from ddprof.dashboard.figures.plotly.draw import draw
from ddprof.dashboard.runs.view import View
from ddprof.errors import UsageError
from ddprof.report.html.style import DARK, LIGHT
from ddprof.untrusted.suggestions import meant

if TYPE_CHECKING:
    import plotly.graph_objects as go

_LINE_PX = 22  # of text above the picture
_LINE_CHARS = 90  # of it, beside the buttons of plotly


def questions(view: View) -> dict[str, str]:
    """The question that each chart of this run answers, by the chart's name."""
    return {exhibit.id: exhibit.question for exhibit in _drawn(view)}


def picture(view: View, name: str) -> go.Figure:
    """One chart with its question, its answer and its legend above it. Raises UsageError for an unknown name."""
    import plotly.graph_objects as go

    exhibit = next((candidate for candidate in _drawn(view) if candidate.id == name), None)
    if exhibit is None or exhibit.chart is None:
        offered = questions(view)
        raise UsageError(f"no picture {name!r} of this run{meant(name, offered)}; there are {', '.join(offered)}")
    drawn, theme = draw(exhibit.chart), DARK if view.dark else LIGHT
    figure = go.Figure(themed(drawn.figure, theme))
    answer = textwrap.wrap(exhibit.reading, _LINE_CHARS)
    legend = (f'<span style="color:{theme[key.color]}">■</span> {plain(key.words)} ' for key in drawn.legend)
    above = [f"<b>{plain(exhibit.question)}</b>", *map(plain, answer), "".join(legend)]
    margin_px = _LINE_PX * (len(above) + 1)
    height_px = drawn.height_px + margin_px
    title = {"text": "<br>".join(above), "font": {"size": 13}, "x": 0, "xref": "container", "pad": {"l": 8}}
    title |= {"yref": "container", "y": 1 - _LINE_PX / 2 / height_px, "yanchor": "top"}
    figure.update_layout(title=title, margin={"t": margin_px}, height=height_px, paper_bgcolor=theme["ground"])
    return figure


def _drawn(view: View) -> Iterator[Exhibit]:
    """The charts one by one, so that a search for one name does not draw the pages after it."""
    seen: set[str] = set()
    for subject in SUBJECTS:
        for exhibit in subject.exhibits(view):
            if exhibit.chart is not None and exhibit.id not in seen:
                seen.add(exhibit.id)
                yield exhibit
