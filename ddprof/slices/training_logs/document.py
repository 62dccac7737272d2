"""The reading of logs as a JSON document (schema "ddprof.training_log/1"). Times are microseconds, missing is null."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ddprof.report.log_reading import finding_row
from ddprof.slices.training_logs.model import LIMITS, CallRow, IterationSummary, LoggedIteration, LogReport, TimerRow
from ddprof.untrusted.secrets import masked_data

SCHEMA = "ddprof.training_log/1"
_GIGA = 1e9


def logs_document(reports: Sequence[LogReport]) -> dict[str, Any]:
    """Plain dicts, lists, strings, numbers and None."""
    return masked_data({"schema": SCHEMA, "logs": [_log(report) for report in reports]})


def _us(ms: float) -> float:
    """Rounded microseconds: logs write milliseconds with two decimals, means have a few more."""
    return round(ms * 1e3, 3)


def _log(report: LogReport) -> dict[str, Any]:
    log = report.log
    return {
        "name": log.label,
        "writers": list(log.writers),
        "sentence": report.sentence,
        "sizes": dict(log.sizes),
        "findings": [finding_row(finding) for finding in report.findings],
        "iteration": None if report.iterations is None else _summary(report.iterations),
        "timers": [_timer(row) for row in report.timers],
        "communication": [_calls(row) for row in report.calls],
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
        "iterations": [_iteration(iteration) for iteration in log.iterations],
        "ranks": [
            {"timer": reading.name, "reading": reading.block, "rank": reading.rank, "time_us": _us(reading.ms)}
            for reading in log.by_rank
        ],
        "not_judged": list(report.abstained),
        "limits": LIMITS,
    }


def _summary(summary: IterationSummary) -> dict[str, Any]:
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


def _iteration(iteration: LoggedIteration) -> dict[str, Any]:
    return {
        "number": iteration.number,
        "time_us": _us(iteration.mean_ms),
        "tflops_per_device": iteration.tflops,
        "global_batch": iteration.batch,
    }


def _timer(row: TimerRow) -> dict[str, Any]:
    return {
        "name": row.name,
        "depth": row.depth,
        "readings": row.counted,
        "shortest_us": None if row.shortest_ms is None else _us(row.shortest_ms),
        "longest_us": _us(row.longest_ms),
        "share": row.share,
        "of_all_ranks": row.of_all_ranks,
    }


def _calls(row: CallRow) -> dict[str, Any]:
    return {
        "operation": row.op,
        "size_bytes": row.size_bytes,
        "count": row.count,
        "total_us": _us(row.total_ms),
        "mean_us": _us(row.mean_ms),
        "bus_bandwidth_bytes_per_s": None if row.busbw_gbs is None else row.busbw_gbs * _GIGA,
        "logged_bus_bandwidth_bytes_per_s": None if row.logged_busbw_gbs is None else row.logged_busbw_gbs * _GIGA,
    }
