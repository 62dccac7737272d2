"""Reports written to stdout or a file in the chosen format."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ddprof.cli.load import say, tell
from ddprof.errors import UsageError
from ddprof.report.model import Report

if TYPE_CHECKING:
    from ddprof.dashboard.runs.open_run import OpenRun

FORMATS = ("text", "json", "markdown", "html")
text_or_json = click.option("--format", "form", type=click.Choice(("text", "json")), default="text", show_default=True)
_SUFFIXES = {".txt": "text", ".json": "json", ".md": "markdown", ".html": "html", ".htm": "html"}


def output_options(*forms: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator that adds `--format`, one of `forms` (none: of FORMATS), and `--output`, as `form` and `output`."""
    form = click.option(
        "--format", "form", type=click.Choice(forms or FORMATS), help="Default: text, or by the suffix of -o."
    )
    file = click.Path(path_type=Path, dir_okay=False)
    output = click.option("-o", "--output", type=file, help="Write to this file, not to stdout.")
    return lambda command: form(output(command))


def chosen_format(stated: str | None, output: Path | None) -> str:
    """The stated format, else the one the file's suffix means, else text."""
    if stated:
        return stated
    return _SUFFIXES.get(output.suffix.lower(), "text") if output else "text"


def deliver(
    reports: Sequence[Report], form: str, output: Path | None, following: Sequence[Sequence[str]], full: bool = False
) -> None:
    """Print the reports, boxed where stdout is a terminal, or write them and print the headlines on stderr.

    `following`: the next commands of each report. `full`: nothing is shortened.
    """
    if output is not None or form != "text" or not sys.stdout.isatty():
        write_reports(output, render(reports, form, following, full), reports)
        return
    from rich.console import Console

    from ddprof.report.text import print_report

    console = Console()
    for report, commands in zip(reports, following, strict=True):
        print_report(console, report, commands, full)


def deliver_pages(
    opened: OpenRun, output: Path | None, key: bytes | None = None, before: OpenRun | None = None
) -> Report:
    """Write the HTML file of a run, to stdout where no file is named, redacted with `key`, and return its report.

    `before`: an earlier run to compare it with.
    """
    from ddprof.dashboard.onefile.document import render as render_pages
    from ddprof.report.redaction.redact import redacted

    text, report = render_pages(opened, before, key), opened.report
    report = redacted(report, key) if key else report
    write_reports(output, text, [report])
    return report


def render(reports: Sequence[Report], form: str, following: Sequence[Sequence[str]] = (), full: bool = False) -> str:
    """All reports as one document of the format; for HTML an opened run, which has the events to draw."""
    if form == "json":
        from ddprof.report.json.contract import to_document

        return json.dumps(to_document(reports), indent=1, allow_nan=False) + "\n"
    if form == "markdown":
        from ddprof.report.markdown import render_markdown as render_one
    else:
        from ddprof.report.text import render_text as render_one
    each = zip(reports, following or [()] * len(reports), strict=True)
    return "\n".join(render_one(report, commands, full) for report, commands in each)


def write_reports(path: Path | None, text: str, reports: Sequence[Report]) -> None:
    """Print a document of the reports, or write it and print their headlines on stderr. Raises UsageError."""
    put(text, path, *(r.failure.sentence if r.failure is not None else r.verdict.headline for r in reports))


def put(text: str, path: Path | None, *sentences: str) -> None:
    """Print a document, or write it and print sentences on stderr. Raises UsageError where it cannot be written."""
    if path is None:
        tell(text)
        return
    write_file(path, text)
    for sentence in (*sentences, f"wrote {path}"):
        say(sentence)


def write_file(path: Path, text: str) -> None:
    """Write a temporary file and rename it, so that nobody reads half a report. Raises UsageError where it cannot."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                stream.write(text)
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(temporary, 0o666 & ~umask)
            os.replace(temporary, path)
        except OSError:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise UsageError(f"{path}: not written: {error.strerror}") from error
