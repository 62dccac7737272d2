"""The verdict as text: one plain sentence, then a line per rank."""

from __future__ import annotations

import textwrap

from ddprof.slices.hangs.evidence import Call
from ddprof.slices.hangs.judging.words import line_words
from ddprof.slices.hangs.model import Hang, RankRow
from ddprof.units import format_ranks, format_us
from ddprof.untrusted.plain_text import clean

PLAIN_WIDTH = 100
_MAX_ROWS = 64  # of ranks: more are no reading matter, and those that matter come first
_HEADINGS = ("rank", "state", "inside", "waits", "line of the script", "steps")


def render_hang(hang: Hang) -> str:
    """The verdict as plain characters, ending in a newline."""
    lines = textwrap.wrap(clean(hang.sentence), PLAIN_WIDTH)
    if hang.rows:
        lines += ["", *_table(hang)]
    others = hang.stuck[1:]
    if others:
        lines += ["", "Stuck as well, later or because of it:"]
        lines += [f"  {_call_name(s.op, s.number, s.group)}: {format_ranks(s.entered)} inside" for s in others]
    if hang.notes:
        lines += ["", *(part for note in hang.notes for part in textwrap.wrap(clean(f"Note: {note}"), PLAIN_WIDTH))]
    return "\n".join(clean(line).rstrip() for line in lines) + "\n"


def _table(hang: Hang) -> list[str]:
    """One line per state, with the ranks of the first cause first."""
    entered = [row.call.entered_ns for row in hang.rows if row.call and row.call.entered_ns]
    latest = max(entered) if len(entered) > 1 else None
    shared: dict[tuple[str, ...], list[int]] = {}
    for row in sorted(hang.rows, key=lambda row: (row.rank not in hang.ranks, row.rank)):
        shared.setdefault(_cells(row, latest), []).append(row.rank)
    rows = [(format_ranks(ranks).split(" ", 1)[1], *cells) for cells, ranks in shared.items()]
    table = [_HEADINGS, *rows[:_MAX_ROWS]]
    widths = [max(len(row[column]) for row in table) for column in range(len(_HEADINGS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    return lines if len(rows) <= _MAX_ROWS else [*lines, f"... and {len(rows) - _MAX_ROWS} more (--json)"]


def _cells(row: RankRow, latest_ns: int | None) -> tuple[str, ...]:
    inside = "-" if row.call is None else _call_name(row.call.op, row.call.number, row.call.group)
    return (
        row.state,
        inside,
        _since(row.call, latest_ns),
        line_words(row.frame, " ") or "-",
        "-" if row.steps is None else str(row.steps),
    )


def _call_name(op: str, number: int, group: str) -> str:
    return f"{op} {number}" + (f", group {group}" if group else "")


def _since(call: Call | None, latest_ns: int | None) -> str:
    """Time in a call beyond that of the last rank to enter, in words."""
    if call is None or call.entered_ns is None or latest_ns is None:
        return "-"
    ahead_us = (latest_ns - call.entered_ns) / 1e3
    return f"{format_us(ahead_us)} longer" if ahead_us >= 1000 else "entered last"
