"""The reading of a log as text: one sentence, findings, then the tables."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from ddprof.report.log_reading import NOTHING, WIDTH, finding_lines, in_blocks, next_commands, number_table
from ddprof.slices.training_logs.model import LIMITS, CallRow, IterationSummary, LogReport, TimerRow
from ddprof.units import format_bytes, format_share, format_us
from ddprof.untrusted.plain_text import clean

_MAX_CALLS = 24  # operations and sizes: more are in the JSON document
_NONE = "-"


def render_log(report: LogReport) -> str:
    """The reading as plain characters, ending in a newline."""
    by = f" ({', '.join(report.log.writers)})" if report.log.writers else ""
    blocks: list[Iterable[str]] = [
        [*textwrap.wrap(clean(report.sentence), WIDTH), clean(f"Log: {report.log.label}{by}")],
        finding_lines(report.findings),
        _iterations(report.iterations),
        _timers(report.timers),
        _calls(report.calls),
        [line for reason in report.abstained for line in textwrap.wrap(f"Not judged. {reason}", WIDTH)],
        textwrap.wrap(LIMITS, WIDTH),
        next_commands(report.findings),
    ]
    return in_blocks(blocks)


def _iterations(summary: IterationSummary | None) -> Iterator[str]:
    if summary is None:
        return
    every = f", each the mean of {summary.every} {summary.unit}s" if summary.every > 1 else ""
    left_out = summary.lines - summary.counted
    warm = f" after {left_out} of warm-up" if left_out else ""
    yield f"{summary.unit.capitalize()}s: {summary.counted} line{'' if summary.counted == 1 else 's'}{every}{warm}"
    bounds = ("10 %", "90 %") if summary.has_deciles else ("shortest", "longest")
    times_ms = (summary.median_ms, summary.low_ms, summary.high_ms)
    cells = [("median", *bounds), tuple(format_us(ms * 1e3) for ms in times_ms)]
    if summary.tflops is not None:
        cells = [(*cells[0], "TFLOP/s per device"), (*cells[1], f"{summary.tflops:.4g}")]
    if summary.samples_per_s is not None:
        cells = [(*cells[0], "samples/s"), (*cells[1], f"{summary.samples_per_s:.4g}")]
    yield from number_table(cells)


def _timers(rows: Sequence[TimerRow]) -> Iterator[str]:
    if not rows:
        return
    yield "Timers of an iteration (what is indented is part of the line above it)"
    spread = any(row.shortest_ms is not None for row in rows)
    head = ("timer", "shortest rank", "longest rank", "share") if spread else ("timer", "time", "share")
    cells: list[tuple[str, ...]] = [head]
    for row in rows:
        shortest = _NONE if row.shortest_ms is None else format_us(row.shortest_ms * 1e3)
        share = _NONE if row.share is None else format_share(row.share)
        longest = format_us(row.longest_ms * 1e3)
        name = "  " * row.depth + row.name
        cells.append((name, shortest, longest, share) if spread else (name, longest, share))
    shares = [row.share for row in rows if row.depth == 0 and row.share is not None]
    if shares and (outer := sum(shares)) < 1 - NOTHING:
        cells.append(("(in no timer)", *[""] * (len(head) - 2), format_share(1 - outer)))
    yield from number_table(cells)


def _calls(rows: Sequence[CallRow]) -> Iterator[str]:
    if not rows:
        return
    yield "Communication (bus bandwidth in gigabytes per second: by size and mean time, and as logged)"
    cells: list[tuple[str, ...]] = [("operation", "size", "calls", "total", "mean", "bus GB/s", "logged")]
    for row in rows[:_MAX_CALLS]:
        rates = ("-" if rate is None else f"{rate:.3g}" for rate in (row.busbw_gbs, row.logged_busbw_gbs))
        size, total, mean = format_bytes(row.size_bytes), format_us(row.total_ms * 1e3), format_us(row.mean_ms * 1e3)
        cells.append((row.op, size, str(row.count), total, mean, *rates))
    yield from number_table(cells)
    if len(rows) > _MAX_CALLS:
        yield f"  ... and {len(rows) - _MAX_CALLS} more (--format json)"
