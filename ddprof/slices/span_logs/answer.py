"""`ddprof analyze` where only logs of spans were given: all files are one run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from ddprof.cli.answer import AnalyzeOptions, SliceAnswer
from ddprof.cli.output import chosen_format, put
from ddprof.errors import NoUsableInput, UsageError
from ddprof.readers.source import Source
from ddprof.report.log_reading import fenced
from ddprof.slices.span_logs.format import FORMAT


def _deliver(sources: Sequence[Source], asked: AnalyzeOptions) -> None:
    """Print or write the reading. Raises UsageError where the format is one of traces, NoUsableInput where there is too
    little to read, or under --strict not all of it."""
    if asked.fails_on:
        raise UsageError("--fail-on judges traces, and only logs of spans were given")
    if asked.wants_fixes:
        raise UsageError("--fixes writes what traces show, and only logs of spans were given")
    form, output = chosen_format(asked.form, asked.output), asked.output
    if form == "html":
        raise UsageError("ddprof draws no timeline of logs of spans: --format text, json or markdown")
    from ddprof.slices.span_logs.read import read_span_logs
    from ddprof.slices.span_logs.text import document, explained, render

    log = read_span_logs(sources)
    if asked.key is not None:
        from ddprof.report.redaction.redact import redacted_data

        log = replace(log, label=redacted_data(log.label, asked.key))
    report = explained(log)
    text = render(report)
    if form == "json":
        text = json.dumps(document(report), indent=1, allow_nan=False) + "\n"
    elif form == "markdown":
        text = fenced(text)
    put(text, output, report.sentence)
    if asked.is_strict and (log.torn or log.damaged):
        raise NoUsableInput(f"--strict: {log.label}: lines or files of its logs are damaged")


ANSWER = SliceAnswer(FORMAT.name, _deliver)
