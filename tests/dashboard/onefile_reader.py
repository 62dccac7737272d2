"""Reads an HTML report back: pages, scripts, words and tables of its exhibits, to compare with the dashboard's."""

import base64
import gzip
import json
from html.parser import HTMLParser
from typing import Any

from ddprof.dashboard.exhibits.catalogue import SUBJECTS
from ddprof.dashboard.exhibits.parts.exhibit import cell, headings
from ddprof.dashboard.onefile.exhibits import MAX_CELLS, MAX_ROWS
from ddprof.dashboard.runs.view import View

ANCHORS = [subject.anchor for subject in SUBJECTS if subject.anchor != "compare"]  # of the pages of one run


class File(HTMLParser):
    """Pages, scripts by id, and of each exhibit the words and the rows of its table."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[tuple[str, dict[str, str | None]]] = []
        self.pages: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.scripts: dict[str, str] = {}
        self.words: dict[str, str] = {}
        self.rows: dict[str, list[list[str]]] = {}
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += attrs
        self.open.append((tag, dict(attrs)))
        if tag == "section" and dict(attrs).get("class") == "page":
            self.pages.append(dict(attrs)["id"] or "")
        if tag == "tr" and (name := self._exhibit()):
            self.rows.setdefault(name, []).append([])
        if tag in ("td", "th") and (name := self._exhibit()):
            self.rows[name][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        tag, attributes = self.open[-1] if self.open else ("", {})
        if tag == "script":
            self.scripts[attributes.get("id") or "code"] = data
        elif name := self._exhibit():
            self.words[name] = self.words.get(name, "") + data
            if tag in ("td", "th"):
                self.rows[name][-1][-1] += data

    def _exhibit(self) -> str:
        """Page and id of the exhibit that is open, "" outside of one."""
        ids = [(a.get("class"), a.get("id") or "") for _, a in self.open]
        page = next((name for kind, name in ids if kind == "page"), "")
        return next((f"{page}/{name.removeprefix('exhibit-')}" for kind, name in ids if kind == "exhibit"), "")

    @property
    def report(self) -> dict[str, Any]:
        return dict(json.loads(self.scripts["report"]))

    def unpacked(self, name: str) -> bytes:
        return gzip.decompress(base64.b64decode(self.scripts[name]))


def equal_tables(file: File, view: View) -> int:
    """Compare every exhibit of every page with its table in the file; how many cells were equal."""
    seen = 0
    for subject in SUBJECTS:
        for exhibit in subject.exhibits(view):
            name = f"{subject.anchor}/{exhibit.id}"
            assert exhibit.question in file.words[name] and exhibit.reading in file.words[name]
            wanted = [[c[0] for c in map(cell, row, exhibit.sheet.columns)] for row in exhibit.sheet.rows]
            if wanted:
                limit = min(MAX_ROWS, MAX_CELLS // len(exhibit.sheet.columns))
                assert file.rows[name] == [[words for words, _ in headings(exhibit.sheet)], *wanted[:limit]], name
                seen += sum(map(len, wanted))
    return seen
