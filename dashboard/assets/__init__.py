"""Scripts and stylesheets for the browser, in folders by user, each joined to one text.

`shared` and `timeline` are for the dashboard and for the HTML file, `dashboard` for Dash's pages alone, `onefile` and
`embedded` (a timeline without a server) for the HTML file alone. A script is the body of a function: what it names is
its own. It adds to the object `ddprof`, its parameter, and builds on what the scripts before it have added: those of
its folder in the order of the alphabet, those of folders named before.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent
PLOTLY_VERSION = "4.1.1"  # of plotly.js in the plotly package that the dashboard is tested with
PLOTLY_SHA256 = "79542150855a52c567260e3137095dbe2b744e6d702a5cabe67da246942fba7a"
PLOTLY_FILE = Path(__file__).parent / "plotly" / "plotly-cartesian.min.js"
_BEGIN, _END = '(function (ddprof) {\n"use strict";\n', "})((window.ddprof = window.ddprof || {}));\n"


@cache
def joined(suffix: str, *folders: str) -> str:
    """All files of some folders that end in `suffix`, in order; each script as a function of its own."""
    files = [file for folder in folders for file in sorted((FOLDER / folder).glob(f"*{suffix}"))]
    begin, end = (_BEGIN, _END) if suffix == ".js" else ("", "")
    return "\n".join(f"{begin}{file.read_text(encoding='utf-8')}{end}" for file in files)


@cache
def plotly_script() -> str:
    """plotly.js, which adds Plotly to the window: the npm package plotly.js-cartesian-dist-min as published."""
    return PLOTLY_FILE.read_text(encoding="utf-8")
