"""The reading of a text log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ddprof.errors import NoUsableInput
from ddprof.readers.admission.discover import MOST_LOGS
from ddprof.readers.source import Source
from ddprof.report.log_reading import LogFinding
from ddprof.slices.training_logs.findings import communication, machine, pace, ranks, timers
from ddprof.slices.training_logs.findings.pace import EPOCH, RUNS, summarise, unit_of
from ddprof.slices.training_logs.model import DATA, CallRow, IterationSummary, LogReport, TimerRow, TrainingLog
from ddprof.slices.training_logs.reading.lines import LOGS_BYTES, LogBudget
from ddprof.slices.training_logs.reading.read import read_training_log
from ddprof.units import format_share, format_us

_ORDER = {"critical": 0, "warning": 1, "info": 2}


def explain_log(source: Source, budget: LogBudget | None = None) -> LogReport:
    """The reading of one log. Raises NoUsableInput where no line of it holds a number."""
    return explain_tables(read_training_log(source, budget))


def said_aside(source: Source) -> str | None:
    """A log's statement on the whole run, beside traces, in one line; None where it holds no number."""
    try:
        log = read_training_log(source, LogBudget(LOGS_BYTES // MOST_LOGS))
    except NoUsableInput:
        return None
    summary = summarise(log)
    return ". ".join([*_usual(log, summary), *_ended(log)]) or None


def explain_tables(log: TrainingLog) -> LogReport:
    """The reading of a log's tables."""
    summary = summarise(log)
    if summary is not None and not machine.is_possible(log.devices):
        summary = replace(summary, tflops=None)
    unit = unit_of(log)
    of_epochs = unit == EPOCH and all(reading.name == DATA for reading in log.timers)  # other timers are of steps
    steps = summary if unit != EPOCH or of_epochs else None
    rows = timers.rows_of(log.timers, steps)
    of_iterations = timers.is_of_iterations(rows, steps)
    whole = f"an {EPOCH if of_epochs else 'iteration'}" if of_iterations or not rows else "what the timers hold"
    outermost_ms = sum(row.longest_ms for row in rows if row.depth == 0) or None
    whole_ms = summary.median_ms if summary is not None and (of_iterations or not rows) else outermost_ms
    calls = communication.rows_of(log.calls, log.sizes)
    findings = [
        *timers.findings_of(rows, whole, log.sizes),
        *ranks.findings_of(log.by_rank, log.sizes, whole_ms, whole),
        *communication.findings_of(log.straggling, summary),
        *machine.findings_of(log, summary),
        *pace.findings_of(log, summary, sum(row.share or 0.0 for row in rows if row.name in timers.LOADING)),
    ]
    findings.sort(key=lambda finding: (_ORDER[finding.severity], -finding.share))
    abstained = tuple(_abstained(log, summary, rows, calls, of_iterations or steps is None))
    return LogReport(
        log, _sentence(log, summary, rows, calls, findings), summary, rows, calls, tuple(findings), abstained
    )


def _usual(log: TrainingLog, summary: IterationSummary | None) -> Iterator[str]:
    if summary is None:
        return
    if [one.number for one in log.iterations] == [1]:
        yield f"The first {summary.unit} takes {format_us(summary.median_ms * 1e3)}, with warm-up; no other is logged"
        return
    spread = f"{format_us(summary.low_ms * 1e3)} to {format_us(summary.high_ms * 1e3)}"
    spread += " in eight of ten" if summary.has_deciles else ""
    article = "A" if summary.unit.startswith("bar") else "An"
    usual = f"{article} {summary.unit} takes {format_us(summary.median_ms * 1e3)}"
    yield f"{usual} ({spread})" if summary.counted > 1 else usual


def _ended(log: TrainingLog) -> Iterator[str]:
    if log.error:
        if log.iterations:
            yield f"The log ends after {unit_of(log)} {log.iterations[-1].number} in {log.error}"
        else:  # others may have been logged in words that are not known
            yield f"The log ends in {log.error}; ddprof finds no iteration in it"


def _sentence(
    log: TrainingLog,
    summary: IterationSummary | None,
    rows: tuple[TimerRow, ...],
    calls: tuple[CallRow, ...],
    findings: list[LogFinding],
) -> str:
    took = [f"The run takes {format_us(log.run.ms * 1e3)}"] if log.run is not None and summary is None else []
    runs = any(finding.id == RUNS and finding.severity != "info" for finding in findings)  # no time is usual of all
    parts = [*_ended(log), *took, *(() if runs else _usual(log, summary))]
    if log.error and summary is None and not (log.timers or calls or took):
        return f"{parts[0]}."
    if summary is not None:
        pass
    elif calls:
        total = sum(row.total_ms for row in calls)
        parts.append(f"{sum(row.count for row in calls)} calls of communication take {format_us(total * 1e3)} in all")
    elif joined := machine.joined(log.transports):
        parts.append(joined)
    elif rows:
        parts.append("The log holds timers and no time of an iteration")
    elif not took:
        return ". ".join([*parts, "The log holds no time of an iteration"]) + "."
    leading = next((finding for finding in findings if finding.severity != "info"), None)
    if leading is not None:
        parts.append(f"{leading.summary}")
    else:
        parts.append("Nothing in the log shows what could be faster")
    return ". ".join(parts) + "."


def _abstained(
    log: TrainingLog,
    summary: IterationSummary | None,
    rows: tuple[TimerRow, ...],
    calls: tuple[CallRow, ...],
    of_iterations: bool,
) -> Iterator[str]:
    if log.damage:
        yield f"The rest of the log: {log.damage}."
    if summary is not None and summary.counted < 3:
        yield "Variation: fewer than three iterations are logged after the first."
    if log.devices.mfu is not None and not machine.is_possible(log.devices):
        yield (
            f"The rate of the devices: an mfu of {format_share(log.devices.mfu)} cannot be, so that the job counts its "
            "operations or its peak wrongly."
        )
    if not rows and summary is not None:
        if "Megatron" in log.writers:
            yield "Parts of an iteration: no timers in the log (Megatron writes them with `--timing-log-level 2`)."
        else:
            yield "Parts of an iteration: no timers in the log."
    elif rows and summary is not None and not of_iterations and all(row.share is None for row in rows):
        yield (
            "The share of loading: the lines that print it took longer than an iteration does, and those between "
            "print none."
        )
    elif rows and summary is not None and not of_iterations:
        yield (
            "Shares of an iteration: the timers hold more than one iteration takes, as they do where several are "
            "added up; shares are of the outermost timers."
        )
    if any(log.sizes.get(kind, 1) > 1 for kind in ("context", "expert")) and log.by_rank:
        yield "Slow ranks: with context or expert parallelism ranks wait for each other inside every timer."
    elif rows and len({reading.rank for reading in log.by_rank}) < 2:
        if any(row.of_all_ranks for row in rows):
            yield "Slow ranks: these timers name no rank (`--timing-log-option all`)."
        else:
            yield "Slow ranks: the timers are of one rank."
    longest = {
        row.op: row for row in reversed(calls) if row.logged_ratio is not None
    }  # by total time, of each operation
    for row in longest.values():
        if row.logged_ratio is None or communication.ALIKE[0] < row.logged_ratio < communication.ALIKE[1]:
            continue
        yield (
            f"The log's own bandwidth: its bus bandwidth of {row.op} is {row.logged_ratio:.1f} times what size and "
            "time give, as some versions of DeepSpeed count; the table has the latter."
        )
    if calls and any(row.busbw_gbs is None and row.size_bytes for row in calls):
        yield (
            "Bus bandwidth of some calls: their time is too short for two decimals, or their group or the meaning of "
            "their size is not in the log."
        )
