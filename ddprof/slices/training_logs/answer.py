"""`ddprof analyze` where only logs of training jobs were given."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ddprof.cli.answer import AnalyzeOptions, SliceAnswer
from ddprof.cli.load import say
from ddprof.cli.output import chosen_format, put
from ddprof.errors import NoUsableInput, UsageError
from ddprof.readers.files.unpacking import among
from ddprof.readers.source import Source
from ddprof.report.log_reading import fenced
from ddprof.slices.training_logs.format import FORMAT
from ddprof.units import format_count

if TYPE_CHECKING:  # every analysis asks this module, and few are of logs
    from ddprof.slices.training_logs.model import LogReport


def _deliver(sources: Sequence[Source], asked: AnalyzeOptions) -> None:
    """Print or write the reading of each log.

    Raises UsageError where the format is one of traces, NoUsableInput where no log holds a number.
    """
    if asked.fails_on or asked.wants_fixes:
        raise UsageError("--fail-on and --fixes need traces, and only training logs were given")
    form, output = chosen_format(asked.form, asked.output), asked.output
    if form == "html":
        raise UsageError("a training log has no timeline to draw: --format text, json or markdown")
    reports = [_redacted(report, asked.key) for report in _read(sources, asked.is_strict)]
    if form == "json":
        from ddprof.slices.training_logs.text import logs_document

        text = json.dumps(logs_document(reports), indent=1, allow_nan=False) + "\n"
    else:
        from ddprof.slices.training_logs.text import render_log

        texts = [render_log(report) for report in _apart(reports)]
        text = "\n".join(map(fenced, texts) if form == "markdown" else texts)
    put(text, output, *(report.sentence for report in reports))


def _read(sources: Sequence[Source], is_strict: bool) -> list[LogReport]:
    from ddprof.slices.training_logs.findings.explain import explain_log
    from ddprof.slices.training_logs.reading.lines import LogBudget

    reports, failures, budget = [], [], LogBudget.of(sources)
    for at, source in enumerate(sources):
        if budget.left_bytes < 0:
            more = format_count(len(sources) - at, "more log")
            failures.append(
                f"{more}, {source.label} first: left out, as so much text was read already; analyze it alone"
            )
            break
        try:
            with among(source.among):
                reports.append(explain_log(source, budget))
        except NoUsableInput as error:
            failures.append(str(error))
    if failures and (is_strict or not reports):
        raise NoUsableInput(failures[0])
    for failure in failures:
        say(failure)
    return reports


def _apart(reports: Sequence[LogReport]) -> list[LogReport]:
    """The first report of those that say the same, as ranks' logs do, with the number of the others."""
    alike: dict[object, list[LogReport]] = defaultdict(list)
    for report in reports:
        alike[report.sentence, tuple(finding.summary for finding in report.findings)].append(report)
    apart = []
    for first, *more in alike.values():
        others = f", and {format_count(len(more), 'more log')} of which the same holds" if more else ""
        apart.append(replace(first, log=replace(first.log, label=first.log.label + others)))
    return apart


def _redacted(report: LogReport, key: bytes | None) -> LogReport:
    """The reading with the file's name hidden; timers and operations are names of the frameworks."""
    if key is None:
        return report
    from ddprof.report.redaction.redact import redacted_data

    return replace(report, log=replace(report.log, label=redacted_data(report.log.label, key)))


ANSWER = SliceAnswer(FORMAT.name, _deliver)
