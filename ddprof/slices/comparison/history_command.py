"""`ddprof history`: a folder of runs over time."""

from __future__ import annotations

import json
import os

import click

from ddprof.cli.load import load_reports, tell
from ddprof.cli.output import text_or_json
from ddprof.cli.reading import Reading, reading_options
from ddprof.cli.redaction import key_of_redaction, redact_option, redacted_errors, redacted_reports
from ddprof.dashboard.runs.names import run_names
from ddprof.errors import NoUsableInput
from ddprof.slices.comparison.history import history, render_text, to_json


@click.command("history")
@click.argument("folder", metavar="FOLDER")
@text_or_json
@redact_option
@reading_options
def command(folder: str, form: str, redact: bool, reading: Reading) -> None:
    """Show the runs below FOLDER over time, and where the step changed.

    \b
    ▲ slower, ▼ faster: by 1 % or more, beyond the spread of the steps (as
      ddprof compare) and, after three runs, beyond that from run to run
    ◆ another kind of job (ranks, device): it cannot be compared

    Facts of traces that were read before come from the cache.

    \b
    ddprof history ddprof-runs
    ddprof history ddprof-runs --format json
    """
    key = key_of_redaction(redact)
    with redacted_errors(key):
        if not os.path.exists(folder) and "://" not in folder:
            raise NoUsableInput(f"{folder}: no such folder")
        reports = redacted_reports(load_reports([folder], reading), key)
        entries = history(list(zip(run_names(reports), reports, strict=True)))
        if not entries:
            raise NoUsableInput(f"{folder}: none of its {len(reports)} runs has a measured step")
        tell(json.dumps(to_json(entries), indent=1, allow_nan=False) if form == "json" else render_text(entries))
