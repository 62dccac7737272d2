"""The reading of a log as text: one sentence, findings, then the tables."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from ddprof.slices.training_logs.model import CallRow, IterationSummary, LogFinding, LogReport, TimerRow
from ddprof.units import format_bytes, format_share, format_us
from ddprof.untrusted.plain_text import clean

PLAIN_WIDTH = 100
_MAX_CALLS = 24  # operations and sizes: more are in the JSON document
_NONE = "-"
_NOTHING = 0.0005  # of an iteration: prints as 0.0 %


def render_log(report: LogReport, next_commands: Sequence[str] = ()) -> str:
    """The reading as plain characters, ending in a newline."""
    blocks = [
        [*textwrap.wrap(clean(report.sentence), PLAIN_WIDTH), clean(f"Log: {report.log.label}{_by(report)}")],
        list(_findings(report.findings)),
        list(_iterations(report.iterations)),
        list(_timers(report.timers)),
        list(_calls(report.calls)),
        [line for reason in report.abstained for line in textwrap.wrap(f"Not judged. {reason}", PLAIN_WIDTH)],
        textwrap.wrap(report.limits, PLAIN_WIDTH),
        [f"Next: {command}" for command in next_commands],
    ]
    return "\n\n".join("\n".join(clean(line).rstrip() for line in block) for block in blocks if block) + "\n"


def markdown_log(report: LogReport, next_commands: Sequence[str] = ()) -> str:
    """The report as one block of Markdown, which no text in the log can break out of."""
    return f"```text\n{render_log(report, next_commands).replace('```', '???')}```\n"


def _by(report: LogReport) -> str:
    return f" ({', '.join(report.log.writers)})" if report.log.writers else ""


def _findings(findings: Sequence[LogFinding]) -> Iterator[str]:
    for finding in findings:
        yield from textwrap.wrap(f"{finding.severity.upper()}  {finding.summary}.", PLAIN_WIDTH, subsequent_indent="  ")
        for sentence in finding.evidence:
            yield from textwrap.wrap(sentence, PLAIN_WIDTH, initial_indent="    ", subsequent_indent="    ")


def _iterations(summary: IterationSummary | None) -> Iterator[str]:
    if summary is None:
        return
    every = f", each the mean of {summary.every} iterations" if summary.every > 1 else ""
    left_out = summary.lines - summary.counted
    warm = f" after {left_out} of warm-up" if left_out else ""
    yield f"Iterations: {summary.counted} line{'' if summary.counted == 1 else 's'}{every}{warm}"
    bounds = ("10 %", "90 %") if summary.has_deciles else ("shortest", "longest")
    cells = [("median", *bounds), tuple(format_us(t * 1e3) for t in _times(summary))]
    if summary.tflops is not None:
        cells = [(*cells[0], "TFLOP/s per device"), (*cells[1], f"{summary.tflops:.4g}")]
    if summary.samples_per_s is not None:
        cells = [(*cells[0], "samples/s"), (*cells[1], f"{summary.samples_per_s:.4g}")]
    yield from _table(cells)


def _times(summary: IterationSummary) -> tuple[float, float, float]:
    return summary.median_ms, summary.low_ms, summary.high_ms


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
    outer = sum(row.share for row in rows if row.depth == 0 and row.share is not None)
    if outer < 1 - _NOTHING:
        cells.append(("(in no timer)", *[""] * (len(head) - 2), format_share(1 - outer)))
    yield from _table(cells)


def _calls(rows: Sequence[CallRow]) -> Iterator[str]:
    if not rows:
        return
    yield "Communication (bus bandwidth in gigabytes per second: by size and mean time, and as logged)"
    cells: list[tuple[str, ...]] = [("operation", "size", "calls", "total", "mean", "bus GB/s", "logged")]
    for row in rows[:_MAX_CALLS]:
        rates = ("-" if rate is None else f"{rate:.3g}" for rate in (row.busbw_gbs, row.logged_busbw_gbs))
        size, total, mean = format_bytes(row.size_bytes), format_us(row.total_ms * 1e3), format_us(row.mean_ms * 1e3)
        cells.append((row.op, size, str(row.count), total, mean, *rates))
    yield from _table(cells)
    if len(rows) > _MAX_CALLS:
        yield f"  ... and {len(rows) - _MAX_CALLS} more (--format json)"


def _table(cells: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """A table, its first column left-aligned, numbers right-aligned; one of numbers alone is right-aligned."""
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    for row in cells:
        first = row[0].ljust(widths[0])
        yield "  ".join(["", first, *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))])
