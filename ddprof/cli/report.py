"""`ddprof report`: one self-contained file of a run to share."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from ddprof.cli.answer import destination
from ddprof.cli.load import load_one, load_open_run
from ddprof.cli.output import chosen_format, deliver_pages, render, write_reports
from ddprof.cli.reading import Reading, reading_options
from ddprof.cli.redaction import key_of_redaction, redact_option, redacted_errors, redacted_reports
from ddprof.errors import UsageError


@click.command("report")
@click.argument("path", metavar="RUN")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("report.html"),
    show_default=True,
    help="The file; its suffix chooses the format: .html, .md, .json or .txt.",
)
@click.option("--against", metavar="RUN", help="An earlier run: adds the page Compare (.html).")
@click.option(
    "--to",
    "trackers",
    multiple=True,
    metavar="TRACKER",
    help="Also write verdict, numbers and the file to wandb, mlflow, tensorboard or comet (NAME[:PLACE]; several).",
)
@redact_option
@reading_options
def command(
    path: str, output: Path, against: str | None, trackers: tuple[str, ...], redact: bool, reading: Reading
) -> None:
    """Write one self-contained file of RUN: the dashboard's pages, opens offline, makes no request, prints well.

    \b
    ddprof report ddprof-runs/latest -o report.html
    ddprof report after/ --against before/ -o change.html
    ddprof report ddprof-runs/latest -o summary.md
    ddprof report ddprof-runs/latest -o for-the-vendor.html --redact
    ddprof report ddprof-runs/latest --to wandb --to mlflow

    Hashes differ between calls unless DDPROF_REDACT_KEY holds the same secret.
    """
    send = destination().sender("--to", trackers) if trackers else None  # checked before anything is read
    form, key = chosen_format(None, output), key_of_redaction(redact)
    with redacted_errors(key):
        if form == "html":
            opened = load_open_run([path], reading)
            before = load_open_run([against], reading) if against else None
            report = deliver_pages(opened, output, key, before)
        elif against:
            raise UsageError(f"--against: {output} is not an HTML file; ddprof compare writes the other formats")
        else:
            report = replace(load_one(path, reading), tables={})
            (report,) = redacted_reports([report], key)
            write_reports(output, render([report], form), [report])
    if send is not None:
        send(report, output, None if key else path)
