"""The reading of logs as text, and as a JSON document (schema "ddprof.training_log/1").

In the document times are microseconds, missing is null.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ddprof.report.log_reading import NOTHING, WIDTH, finding_lines, finding_row, in_blocks, next_commands, number_table
from ddprof.slices.training_logs.model import LIMITS, CallRow, IterationSummary, LoggedIteration, LogReport, TimerRow
from ddprof.units import format_bytes, format_share, format_us
from ddprof.untrusted.plain_text import clean
from ddprof.untrusted.secrets import masked_data

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
        [
            line
            for reason in report.abstained
            for line in textwrap.wrap(f"Not judged. {reason}", WIDTH, break_on_hyphens=False)
        ],
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


SCHEMA = "ddprof.training_log/1"
_GIGA = 1e9


def logs_document(reports: Sequence[LogReport]) -> dict[str, Any]:
    """Plain dicts, lists, strings, numbers and None."""
    return masked_data({"schema": SCHEMA, "logs": [_log_entry(report) for report in reports]})


def _us(ms: float) -> float:
    """Rounded microseconds: logs write milliseconds with two decimals, means have a few more."""
    return round(ms * 1e3, 3)


def _log_entry(report: LogReport) -> dict[str, Any]:
    log = report.log
    return {
        "name": log.label,
        "writers": list(log.writers),
        "sentence": report.sentence,
        "sizes": dict(log.sizes),
        "findings": [finding_row(finding) for finding in report.findings],
        "iteration": None if report.iterations is None else _summary_entry(report.iterations),
        "timers": [_timer_entry(row) for row in report.timers],
        "communication": [_call(row) for row in report.calls],
        "stragglers": [
            {
                "operation": row.op,
                "size_bytes": row.size_bytes,
                "count": row.count,
                "transfer_us": _us(row.transfer_ms),
                "waiting_us": _us(row.beyond_ms),
            }
            for row in log.straggling
        ],
        "iterations": [_iteration_entry(iteration) for iteration in log.iterations],
        "ranks": [
            {"timer": reading.name, "reading": reading.block, "rank": reading.rank, "time_us": _us(reading.ms)}
            for reading in log.by_rank
        ],
        "not_judged": list(report.abstained),
        "limits": LIMITS,
    }


def _summary_entry(summary: IterationSummary) -> dict[str, Any]:
    return {
        "lines": summary.lines,
        "counted": summary.counted,
        "iterations_per_line": summary.every,
        "median_us": _us(summary.median_ms),
        "p10_us": _us(summary.low_ms),
        "p90_us": _us(summary.high_ms),
        "slow": [iteration.number for iteration in summary.slow],
        "slow_share": summary.slow_share,
        "tflops_per_device": summary.tflops,
        "samples_per_s": summary.samples_per_s,
    }


def _iteration_entry(iteration: LoggedIteration) -> dict[str, Any]:
    return {
        "number": iteration.number,
        "time_us": _us(iteration.mean_ms),
        "tflops_per_device": iteration.tflops,
        "global_batch": iteration.batch,
    }


def _timer_entry(row: TimerRow) -> dict[str, Any]:
    return {
        "name": row.name,
        "depth": row.depth,
        "readings": row.counted,
        "shortest_us": None if row.shortest_ms is None else _us(row.shortest_ms),
        "longest_us": _us(row.longest_ms),
        "share": row.share,
        "of_all_ranks": row.of_all_ranks,
    }


def _call(row: CallRow) -> dict[str, Any]:
    return {
        "operation": row.op,
        "size_bytes": row.size_bytes,
        "count": row.count,
        "total_us": _us(row.total_ms),
        "mean_us": _us(row.mean_ms),
        "bus_bandwidth_bytes_per_s": None if row.busbw_gbs is None else row.busbw_gbs * _GIGA,
        "logged_bus_bandwidth_bytes_per_s": None if row.logged_busbw_gbs is None else row.logged_busbw_gbs * _GIGA,
    }
