"""`ddprof export`: a run for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ddprof.cli.load import Progress, progress_bar, say, the_one
from ddprof.cli.redaction import key_of_redaction, redact_option, redacted_errors
from ddprof.errors import NoUsableInput, UsageError

if TYPE_CHECKING:
    from ddprof.dashboard.runs.open_run import OpenRun
    from ddprof.report.redaction.redact import Redaction

MOST_AS_TEXT = 1_000_000  # slices: the UI parses text slowly, and holds some 2 GB of it at most


@click.command("export")
@click.argument("path", metavar="RUN")
@click.option("--to", "form", type=click.Choice(("perfetto", "parquet", "csv")), default="perfetto", show_default=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File (perfetto) or folder (parquet, csv).")
@click.option("--ranks", help="Ranks of the trace: 0,3 or 0-7 (default: all).")
@redact_option
@click.option("--workers", type=click.IntRange(1), help="Processes that read traces (default: by CPU).")
def command(path: str, form: str, output: Path | None, ranks: str | None, redact: bool, workers: int | None) -> None:
    """Write RUN for other tools.

    \b
    perfetto   one trace of all ranks on one clock, with steps, findings and arrows from
               the rank that came last to those that waited; open it at ui.perfetto.dev
               (it stays in the browser). Chrome's JSON; Perfetto's own format above a
               million slices, or where -o ends in .pftrace
    parquet    tables with documented columns (columns.md), one file each
    csv        the same as text
    """
    from ddprof.dashboard.onefile.names import redaction_of
    from ddprof.dashboard.runs.open_run import load

    key = key_of_redaction(redact)
    with redacted_errors(key), progress_bar() as progress:
        open_runs = load([path], workers, progress)
        opened = the_one(path, open_runs, [one.report.run.name for one in open_runs])
        if form == "perfetto" and opened.loaded is None:
            raise NoUsableInput(
                f"{path}: a saved report holds no events; name the traces, or export its tables (--to csv)"
            )
        redaction = redaction_of(opened, key) if key else None
        try:
            if form == "perfetto":
                _perfetto(opened, output, ranks, progress, redaction)
            else:
                _tables(opened, output or Path(f"ddprof-{form}"), form, redaction)
        except OSError as error:
            raise UsageError(f"{error.filename or output}: not written: {error.strerror}") from error


def _tables(opened: OpenRun, folder: Path, form: str, redaction: Redaction | None) -> None:
    from ddprof.analyzers.kernel_table.named_tables import named_tables
    from ddprof.report.export.columns import report_tables, write_tables

    tables = report_tables(opened.report)
    if opened.has_traces:
        tables |= named_tables(opened.job) | {"kernels": opened.kernels.rows}
    if redaction is not None:
        tables = {name: redaction.table(table, of_events=name == "kernels") for name, table in tables.items()}
    files = write_tables(folder, tables, form)
    say(f"wrote {len(files) - 1} tables to {folder}; what the columns mean: {folder / 'columns.md'}")


def _perfetto(
    opened: OpenRun, output: Path | None, ranks: str | None, progress: Progress | None, redaction: Redaction | None
) -> None:
    from ddprof.dashboard.numbers import parse_numbers
    from ddprof.dashboard.runs.perfetto import PERFETTO_UI, write_run

    job = opened.job
    try:
        named = parse_numbers(ranks or "")
    except UsageError as error:
        raise UsageError(f"--ranks: {error}") from None
    chosen = [rank for rank in job.rank_ids if named is None or rank in named]
    if not chosen:
        raise UsageError(f"--ranks {ranks}: this run has ranks {min(job.rank_ids)} to {max(job.rank_ids)}")
    events = sum(f.counts.get("events", 0) for f, r in zip(job.ranks, job.rank_ids, strict=True) if r in chosen)
    file = output or Path(f"ddprof-trace.{'pftrace' if events > MOST_AS_TEXT else 'json'}.gz")
    file.parent.mkdir(parents=True, exist_ok=True)
    slices, waits = write_run(opened, file, chosen, progress, redaction)
    say(f"wrote {slices} slices and {waits} waits to {file}; open it at {PERFETTO_UI}")
