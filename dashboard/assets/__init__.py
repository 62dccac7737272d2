"""Scripts and stylesheets for the browser, in folders by user, each joined to one text.

`shared` and `timeline` are for the dashboard and for the HTML file, `dashboard` for Dash's pages alone, `onefile` and
`embedded` (a timeline without a server) for the HTML file alone. A script adds to the object `ddprof` and builds on
what the scripts before it have added: those of its folder in the order of the alphabet, those of folders named before.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent
PLOTLY_VERSION = "4.1.1"  # of plotly.js in the plotly package that the dashboard is tested with
PLOTLY_SHA256 = "79542150855a52c567260e3137095dbe2b744e6d702a5cabe67da246942fba7a"
PLOTLY_FILE = Path(__file__).parent / "plotly" / "plotly-cartesian.min.js"


@cache
def joined(suffix: str, *folders: str) -> str:
    """All files of some folders that end in `suffix`, in order."""
    files = [file for folder in folders for file in sorted((FOLDER / folder).glob(f"*{suffix}"))]
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


@cache
def plotly_script() -> str:
    """plotly.js, which adds the object Plotly to the window: its partial bundle for cartesian charts, as published.

    It is that of the npm package plotly.js-cartesian-dist-min, whose licence lies beside it.
    """
    return PLOTLY_FILE.read_text(encoding="utf-8")
