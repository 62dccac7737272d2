"""Content of every page: a question, its answer in a sentence, a chart, and the numbers as table and CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ddprof.dashboard.figures.charts import Chart
from ddprof.report.export.columns import text_cell
from ddprof.tables import Array
from ddprof.units import format_bytes, format_name

NAME = "text name"  # CSS class of a cell that holds a shortened name
SHORT_CHARS = 24  # of a text in a table that is kept in one line
MOST_CHARS = 48


@dataclass(frozen=True)
class Sheet:
    """Numbers behind a picture: column titles with their units, and rows of text, numbers or None.

    `is_tool`: readers sort and filter it. `weight`: the column whose sum is stated for rows not shown. `commands`: per
    row, the command for more detail; "" for none.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    is_tool: bool = False
    weight: int | None = None
    commands: tuple[str, ...] = ()

    def rest(self, shown: int) -> str:
        """Summary of the rows after the first `shown`: "120 more rows, 1.2 of the step (%)"; "" for none."""
        left = self.rows[shown:]
        if not left:
            return ""
        count = f"{len(left)} more row{'s' if len(left) > 1 else ''}"
        if self.weight is None:
            return count
        return f"{count}, together {sum(row[self.weight] or 0.0 for row in left):.2g} {self.columns[self.weight]}"

    def command(self, row: int) -> str:
        """The command for more detail on a row; "" for none."""
        return self.commands[row] if self.commands else ""

    def csv(self) -> str:
        """The sheet as CSV text with a header line; missing values are empty."""
        out = io.StringIO()
        writer = csv.writer(out)
        writer.writerow(map(text_cell, self.columns))
        writer.writerows([_cell(value) for value in row] for row in self.rows)
        return out.getvalue()


@dataclass(frozen=True)
class Listing:
    """Text to copy, a command or a patch, with an introduction."""

    words: str
    text: str


@dataclass(frozen=True)
class Way:
    """A link to another page of the dashboard with its filters."""

    words: str
    path: str
    query: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Exhibit:
    """One chart. `id` names it in addresses; without a chart the sheet is the exhibit. `listings` end it.

    `ways`: links, for the dashboard only.

    `follows`: which of the filters ("ranks", "steps") choose what it shows; under any other it says that it does not.
    """

    id: str
    question: str
    reading: str
    sheet: Sheet
    chart: Chart | None = None
    follows: tuple[str, ...] = ()
    listings: tuple[Listing, ...] = ()
    ways: tuple[Way, ...] = ()


def following(exhibit: Exhibit, *filters: str) -> Exhibit:
    """The exhibit with its contents chosen by these filters."""
    return replace(exhibit, follows=filters)


def unfiltered_words(ignored: Sequence[str]) -> str:
    """A sentence on filters without effect: "All steps, whatever the filter."; "" where all have one."""
    return f"All {' and '.join(ignored)}, whatever the filter." if ignored else ""


def sheet(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Sheet:
    """A sheet from any sequences."""
    return Sheet(tuple(columns), tuple(tuple(row) for row in rows))


def matrix(columns: Sequence[str], names: Iterable[Any], values: Array) -> Sheet:
    """A row of numbers per name, shape (names, columns - 1); missing where a number is not finite."""
    lines = zip(names, values.tolist(), strict=True)
    return sheet(columns, ((name, *(v if math.isfinite(v) else None for v in line)) for name, line in lines))


class Named(str):
    """A name that may be long: tables show it shortened in one line, and in full on request."""

    __slots__ = ()

    @property
    def short(self) -> str:
        """The shortened name for a table."""
        return format_name(self, MOST_CHARS)


class Nested(Named):
    """A name shortened at its beginning: a path of modules, a line of a file."""

    __slots__ = ()

    @property
    def short(self) -> str:
        """The last part of the nested name."""
        return self if len(self) <= MOST_CHARS else f"…{self[1 - MOST_CHARS :]}"


def cell(value: object, column: str = "") -> tuple[str, str]:
    """Text and CSS class of a value in a table, below the heading `column`."""
    if isinstance(value, Named):
        return value.short, NAME
    if value is None:
        return "–", ""
    if isinstance(value, (int, float)) and "bytes" in column:
        return format_bytes(value), ""
    if isinstance(value, float):
        digits = ".4g" if 1e-3 <= abs(value) < 1e4 or not value else ",.0f" if abs(value) >= 1e4 else ".3f"
        return f"{value:{digits}}", ""
    if isinstance(value, str):
        return value, "text short" if len(value) <= SHORT_CHARS else "text"
    return str(value), ""


def headings(sheet: Sheet) -> list[tuple[str, str]]:
    """Words and CSS class of each heading: aligned as its column, and without a unit that each of its cells states."""
    kinds = [
        "text" if i == 0 or any(isinstance(row[i], str) for row in sheet.rows) else ""
        for i in range(len(sheet.columns))
    ]
    return [(title.removesuffix(" (bytes)"), kind) for title, kind in zip(sheet.columns, kinds, strict=True)]


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    return text_cell(value) if isinstance(value, str) else value
