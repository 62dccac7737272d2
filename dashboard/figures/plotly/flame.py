"""A flame graph, the whole on top: bars that begin where their parent does."""

from __future__ import annotations

from ddprof.dashboard.figures.charts import Flame, FlameFrame
from ddprof.dashboard.figures.plotly.base import BELOW_PX, PALE, Drawn, Key, label, layout, var
from ddprof.units import format_name

LINE_PX = 24
CHAR_PX, WIDE_PX = 6.6, 900  # of the text; of the picture that its length is made for
LETTERS_PX, LEAST_PX = 11, 9  # of the text; a smaller one is left out
LEAST_CHARS = 3  # a shorter label says nothing
_COLORS = {"compute": "compute", "communication": "comm-transfer", "copy": "memcpy"}  # of operators and kernels
_TABLES = {"module": "modules", "operator": "kernels", "kernel": "kernels"}  # which table lists frames of a level


def flame(chart: Flame) -> Drawn:
    """One bar per frame; customdata holds its tooltip, its table, and the text of its row."""
    depth = max((frame.depth for frame in chart.frames), default=0) + 1
    whole_us = max((frame.busy_us for frame in chart.frames), default=0.0) or 1.0
    made = layout(LINE_PX * depth + BELOW_PX, "ms/step")
    made |= {"barmode": "overlay", "bargap": 0.06, "uniformtext": {"mode": "hide", "minsize": LEAST_PX}}
    made["xaxis"] |= {"range": [0.0, whole_us / 1e3], "showgrid": False}
    made["yaxis"] |= {"range": [depth - 0.5, -0.5], "visible": False, "fixedrange": True}
    pale = [frame.level == "operator" for frame in chart.frames]
    colors = [_COLORS[frame.kind] if frame.level in ("operator", "kernel") else "line" for frame in chart.frames]
    on_light = [is_pale or color == "line" for is_pale, color in zip(pale, colors, strict=True)]
    bars = {
        "type": "bar",
        "orientation": "h",
        "base": [_short(frame.start_us / 1e3) for frame in chart.frames],
        "x": [_short(frame.busy_us / 1e3) for frame in chart.frames],
        "y": [frame.depth for frame in chart.frames],
        "text": [_text(frame, whole_us) for frame in chart.frames],
        "textposition": "inside",
        "insidetextanchor": "start",
        "textangle": 0,
        "insidetextfont": {"size": LETTERS_PX, "color": [var("text" if light else "on-bar") for light in on_light]},
        "marker": {
            "color": list(map(var, colors)),
            "opacity": [PALE if is_pale else 1.0 for is_pale in pale],
            "line": {"width": 1, "color": var("ground")},
        },
        "customdata": [_told(frame, whole_us) for frame in chart.frames],
        "hovertemplate": "%{customdata[0]}<br>%{customdata[1]:.4g} ms/step, %{customdata[2]:.3g} % of all, "
        "%{customdata[3]:.3g} % of the step<br>%{customdata[4]:.4g} calls/step, total %{customdata[5]:.4g} ms/step"
        "<extra></extra>",
    }
    used = {color for frame, color in zip(chart.frames, colors, strict=True) if frame.level in _TABLES}
    legend = [key for key in _KEYS if key.color in used]
    if any(pale):
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


def _shown(frame: FlameFrame) -> str:
    return format_name(frame.words) if frame.level == "kernel" and frame.name else frame.words


def _text(frame: FlameFrame, whole_us: float) -> str:
    most, words = int(frame.busy_us / whole_us * WIDE_PX / CHAR_PX) - 1, _shown(frame)
    if most < LEAST_CHARS:
        return ""
    if frame.level == "module" and len(words) > most:  # the end of a module's name tells its layer
        return label(f"…{words[1 - most :]}", most)
    return label(words, most)


def _told(frame: FlameFrame, whole_us: float) -> list[str | float]:
    shares = (100 * frame.busy_us / whole_us, 100 * frame.step_share)
    amounts = (frame.busy_us / 1e3, *shares, frame.calls, frame.total_us / 1e3)
    table = _TABLES.get(frame.level, "") if frame.name else ""
    return [label(_shown(frame), 90), *map(_short, amounts), table, frame.name]
