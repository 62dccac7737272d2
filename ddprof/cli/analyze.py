"""`ddprof analyze`: traces in, verdict out."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

import click

from ddprof.capture.files.layout import MANIFEST
from ddprof.capture.launcher.live import read_ranks, silent_ranks
from ddprof.cli.answer import AnalyzeOptions, answer_without_events
from ddprof.cli.fixes import FIXES_HELP, leave_fixes
from ddprof.cli.gates import FAIL_ON_HELP, check_gates, gates_of
from ddprof.cli.load import load_open_run, load_reports, require_complete
from ddprof.cli.output import chosen_format, deliver, deliver_pages, output_options
from ddprof.cli.reading import Reading, reading_options
from ddprof.cli.redaction import key_of_redaction, redact_option, redacted_errors, redacted_reports
from ddprof.errors import UsageError
from ddprof.readers.source import OnlyLogs
from ddprof.report import phrases
from ddprof.report.model import Report
from ddprof.units import format_ranks


@click.command("analyze")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@output_options()
@click.option("--all", "full", is_flag=True, help="Show every finding, check and note (text and Markdown).")
@click.option("--strict", is_flag=True, help="Exit with 4 where the input is incomplete.")
@click.option("--fail-on", multiple=True, metavar="EXPR", help=FAIL_ON_HELP)
@click.option("--fixes", type=click.Path(path_type=Path, dir_okay=False), help=FIXES_HELP)
@redact_option
@reading_options
@click.option(
    "--max-memory",
    type=click.IntRange(64),
    metavar="MIB",
    callback=lambda ctx, param, mib: mib * 2**20 if mib else None,
    help="Memory limit of all processes; fewer ranks are read at once.",
)
def command(
    paths: tuple[str, ...],
    form: str | None,
    output: Path | None,
    full: bool,
    fail_on: tuple[str, ...],
    fixes: Path | None,
    redact: bool,
    reading: Reading,
) -> None:
    """Say why a traced job is slow, what to change, and what it will save.

    PATH is a run folder of `ddprof run`, a trace file, a folder or archive of traces, any of these behind an fsspec
    URL (s3://bucket/run), or a saved JSON report. A log of a training job (Megatron, NeMo, DeepSpeed; spans of
    torchtitan) given alone is read for what its lines say, a memory snapshot as by `ddprof memory`.

    \b
    ddprof analyze ddprof-runs/latest
    ddprof analyze traces/ --format json -o report.json
    ddprof analyze traces/ --fail-on warning --fail-on 'exposed_comm>20%'
    ddprof analyze s3://bucket/run --engine dask://scheduler:8786
    ddprof analyze traces/ --ranks sample:32
    """
    gates = gates_of(fail_on)
    key = key_of_redaction(redact)
    asked = AnalyzeOptions(form, output, key, bool(gates), reading.strict, fixes is not None)
    form = chosen_format(form, output)
    if fixes is not None and (key or form == "html"):
        raise UsageError(f"--fixes: not with {'--redact' if key else '--format html'}")
    with redacted_errors(key):
        try:
            if form == "html":
                reports = [deliver_pages(load_open_run(paths, reading), output, key)]
            else:
                reports = load_reports(paths, reading)
        except OnlyLogs as only:
            answer_without_events(only.sources, asked)
            return
        if form != "html":
            reports = redacted_reports(reports, key)
            alone = len(reports) == 1
            if fixes is not None and not alone:
                raise UsageError(f"--fixes: these are {len(reports)} runs; name one of them")
            left = leave_fixes(reports[0], paths, fixes) if alone and not key else None
            following = [next_commands(("RUN",) if key else paths, report, alone, left) for report in reports]
            deliver(reports, form, output, following, full)
        if reading.strict:
            require_complete(reports)
        check_gates(gates, reports)


def next_commands(paths: Sequence[str], report: Report, alone: bool, fixes: Path | None = None) -> list[str]:
    """Commands to type next: explain the failure or first finding, apply its fixes and share a single report."""
    leading = phrases.leading(report)
    shown = " ".join(shlex.quote(path) for path in paths)
    stuck = [] if report.failure or len(paths) != 1 else silent_ranks(read_ranks(Path(paths[0])))
    why = f"  # no step for a while on {format_ranks(stuck)}" if stuck else ""
    explain = [f"ddprof hang {shown}{why}"] if report.failure or stuck else []
    explain += [f"ddprof explain {leading.id}"] if leading else []
    if fixes:
        from ddprof.report.fixes import mends_first

        explain += [f"ddprof run --apply {shlex.quote(str(fixes))} -- {_command(paths)}"] if mends_first(report) else []
    return [*explain, f"ddprof report {shown} -o report.html"] if alone else explain


def _command(paths: Sequence[str]) -> str:
    """The command that started the run, from its manifest; COMMAND where no manifest has it."""
    from ddprof.readers.side_files.manifests import launch_of

    launch = launch_of([os.path.join(paths[0], MANIFEST)]) if len(paths) == 1 else None
    return launch.command if launch else "COMMAND"
