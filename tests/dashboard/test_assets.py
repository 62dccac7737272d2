"""Scripts and stylesheets keep to the sizes of the house, and all of them are given to a page."""

import re
from pathlib import Path

import pytest

from ddprof.dashboard.assets import FOLDER, PLOTLY_FILE
from ddprof.dashboard.onefile.document import render
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.dashboard.server import scripts

MAX_LINE_CHARS, MAX_FILE_LINES, MAX_BLOCK_LINES = 120, 400, 60
FILES = sorted(file for kind in ("js", "css") for file in FOLDER.rglob(f"*.{kind}") if file != PLOTLY_FILE)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(FOLDER)))
def test_files_lines_and_functions_keep_to_their_size(file: Path) -> None:
    lines = file.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= MAX_FILE_LINES and [line for line in lines if len(line) > MAX_LINE_CHARS] == []
    assert [block for block in _blocks(lines) if block[1] > MAX_BLOCK_LINES] == []


def _blocks(lines: list[str]) -> list[tuple[str, int]]:
    """First line and length of every function and every block of a statement."""
    heads = ((first, re.match(r"( *)\S.*(?:\)|=>) \{$", line)) for first, line in enumerate(lines))
    ends = {first: f"{head[1]}}}" for first, head in heads if head}
    last = {first: next(i for i in range(first + 1, len(lines)) if lines[i].startswith(ends[first])) for first in ends}
    return [(lines[first], last[first] - first + 1) for first in ends]


def test_long_functions_are_seen() -> None:
    assert _blocks(["function long() {", *["  step();"] * 70, "}"]) == [("function long() {", 72)]


def test_every_file_is_part_of_a_page_and_the_timelines_of_one_with_events(straggler: OpenRun) -> None:
    pages = "\n".join((scripts.styles(), scripts.joined(".js", "shared", "timeline", "dashboard"), render(straggler)))
    assert [file.name for file in FILES if file.read_text(encoding="utf-8") not in pages] == []
    assert ["ddprof.Timeline = class" in render(run) for run in (straggler, OpenRun(straggler.report))] == [True, False]


def test_no_two_files_of_the_timeline_define_one_method() -> None:
    """They add to the same prototypes: the later file would replace the earlier one's method without a word."""
    names = [
        (name, "Painter" if file.name.startswith("paint") else "Timeline")
        for file in sorted((FOLDER / "timeline").glob("*.js"))
        for name in re.findall(r"^  (?:async |get )?(\w+)\(.*\) \{$", file.read_text(encoding="utf-8"), re.M)
        if name not in ("if", "for", "while", "switch", "constructor")
    ]
    assert sorted({name for name in names if names.count(name) > 1}) == []
