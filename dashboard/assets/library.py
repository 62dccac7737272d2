"""plotly.js, its partial bundle for cartesian charts, as it was published: what draws in the dashboard and in the file.

plotly/plotly-cartesian.min.js is that of the npm package plotly.js-cartesian-dist-min, whose licence lies beside it.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

PLOTLY_VERSION = "4.1.1"  # of plotly.js in the plotly package that the dashboard is tested with
PLOTLY_SHA256 = "79542150855a52c567260e3137095dbe2b744e6d702a5cabe67da246942fba7a"
PLOTLY_FILE = Path(__file__).parent / "plotly" / "plotly-cartesian.min.js"


@cache
def plotly_script() -> str:
    """The script; it adds the object Plotly to the window."""
    return PLOTLY_FILE.read_text(encoding="utf-8")
