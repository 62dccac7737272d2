"""A flame graph, the whole on top: bars that begin where their parent does."""

from __future__ import annotations

from ddprof.dashboard.figures.charts import Flame, FlameFrame
from ddprof.dashboard.figures.plotly.base import BELOW_PX, PALE, Drawn, Key, label, layout, var

LINE_PX = 24
CHAR_PX, WIDE_PX = 6.6, 900  # of the text; of the picture that its length is made for
LETTERS_PX, LEAST_PX = 11, 9  # of the text; a smaller one is left out
LEAST_CHARS = 3  # a shorter label says nothing


def flame(chart: Flame) -> Drawn:
    """One bar per frame; customdata holds its tooltip, its table, and the text of its row."""
    depth = max((frame.line for frame in chart.frames), default=0) + 1
    whole = max((frame.length for frame in chart.frames), default=0.0) or 1.0
    made = layout(LINE_PX * depth + BELOW_PX, chart.unit)
    made |= {"barmode": "overlay", "bargap": 0.06, "uniformtext": {"mode": "hide", "minsize": LEAST_PX}}
    made["xaxis"] |= {"range": [0.0, whole], "showgrid": False}
    made["yaxis"] |= {"range": [depth - 0.5, -0.5], "visible": False, "fixedrange": True}
    light = [frame.is_pale or frame.color == "line" for frame in chart.frames]
    bars = {
        "type": "bar",
        "orientation": "h",
        "base": [_short(frame.start) for frame in chart.frames],
        "x": [_short(frame.length) for frame in chart.frames],
        "y": [frame.line for frame in chart.frames],
        "text": [_text(frame, whole) for frame in chart.frames],
        "textposition": "inside",
        "insidetextanchor": "start",
        "textangle": 0,
        "insidetextfont": {"size": LETTERS_PX, "color": [var("text" if pale else "on-bar") for pale in light]},
        "marker": {
            "color": [var(frame.color) for frame in chart.frames],
            "opacity": [PALE if frame.is_pale else 1.0 for frame in chart.frames],
            "line": {"width": 1, "color": var("ground")},
        },
        "customdata": [_told(frame, whole) for frame in chart.frames],
        "hovertemplate": "%{customdata[0]}<br>%{customdata[1]:.4g} " + chart.unit + ", %{customdata[2]:.3g} % of all, "
        "%{customdata[3]:.3g} % of the step<br>%{customdata[4]:.4g} calls/step, total %{customdata[5]:.4g} "
        + chart.unit
        + "<extra></extra>",
    }
    used = {frame.color for frame in chart.frames}
    legend = [key for key in _KEYS if key.color in used]
    if any(frame.is_pale for frame in chart.frames):
        legend.append(Key("compute", "", "operators: paler", is_pale=True))
    return Drawn([bars], made, tuple(legend), most_width_px=None)


_KEYS = (
    Key("line", "", "modules"),
    Key("compute", "", "compute"),
    Key("comm-transfer", "", "communication"),
    Key("memcpy", "", "copies"),
)


def _short(value: float) -> float:
    return float(f"{value:.9g}")


def _text(frame: FlameFrame, whole: float) -> str:
    most = int(frame.length / whole * WIDE_PX / CHAR_PX) - 1
    if most < LEAST_CHARS:
        return ""
    if frame.color == "line" and len(frame.name) > most:  # the end of a module's name tells its layer
        return label(f"…{frame.name[1 - most :]}", most)
    return label(frame.name, most)


def _told(frame: FlameFrame, whole: float) -> list[str | float]:
    return [
        label(frame.name, 90),
        _short(frame.length),
        _short(100 * frame.length / whole),
        _short(100 * frame.step_share),
        _short(frame.calls),
        _short(frame.total),
        frame.table,
        frame.row,
    ]
