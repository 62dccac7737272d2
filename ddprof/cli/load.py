"""Reports for the paths of a command line: traces are analyzed, saved JSON reports are read."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from ddprof.cli.lazy_group import import_lasting
from ddprof.cli.reading import Reading
from ddprof.errors import NoUsableInput, UsageError
from ddprof.report.calibration import calibrated, of_run
from ddprof.report.json.contract import is_saved_report, read_saved
from ddprof.report.model import Report
from ddprof.units import format_ranks
from ddprof.untrusted.plain_text import clean, clean_lines

if TYPE_CHECKING:
    from ddprof.analyzers.engine import LoadedRun
    from ddprof.dashboard.runs.open_run import OpenRun

_ENGINE = "ddprof.analyzers.engine"
_AS_USUAL = Reading()
T = TypeVar("T")


def load_reports(paths: Sequence[str], reading: Reading = _AS_USUAL) -> list[Report]:
    """One report per run in `paths`. Raises NoUsableInput where there is none."""
    if all(is_saved_report(path) for path in paths):
        return [report for path in paths for report in read_saved(Path(path))]
    records = of_run(paths)
    return [calibrated(run.report, records) for run in _runs(paths, reading)]


def load_one(path: str, reading: Reading = _AS_USUAL) -> Report:
    """The report of the single run in `path`. Raises NoUsableInput where there are several."""
    reports = load_reports([path], reading)
    return the_one(path, reports, [report.run.name or "?" for report in reports])


def the_one(path: str, runs: Sequence[T], names: Sequence[str]) -> T:
    """The single run of `path`. Raises NoUsableInput where there are several."""
    if len(runs) > 1:
        raise NoUsableInput(f"{path}: holds {len(runs)} runs ({', '.join(names)}); name one of them")
    return runs[0]


def load_run(path: str, reading: Reading = _AS_USUAL) -> LoadedRun:
    """The single run in `path`, with its replay. Raises NoUsableInput where there is none or more than one."""
    if is_saved_report(path):
        raise NoUsableInput(f"{path}: a saved report cannot be replayed; name the traces")
    runs = list(_runs([path], reading))
    return the_one(path, runs, [run.label for run in runs])


def load_open_run(paths: Sequence[str], reading: Reading = _AS_USUAL) -> OpenRun:
    """The single run in `paths`, opened for HTML; it has traces unless it is a saved report.

    Raises NoUsableInput where there is none, UsageError where there is more than one.
    """
    import_lasting(_ENGINE)
    from ddprof.dashboard.runs.open_run import OpenRun

    if all(is_saved_report(path) for path in paths):
        opened = [OpenRun(report) for report in load_reports(paths)]
    else:
        records = of_run(paths)
        opened = [OpenRun(calibrated(run.report, records), run) for run in _runs(paths, reading)]
    if len(opened) > 1:
        raise UsageError(f"an HTML report holds one run, but {len(opened)} were found; name one of them")
    return opened[0]


def _runs(paths: Sequence[str], reading: Reading) -> Iterator[LoadedRun]:
    """The runs in `paths`, one after another, with progress. Raises NoUsableInput where there is none."""
    import_lasting(_ENGINE)
    from ddprof.analyzers.engine import Options, load_runs

    with progress_bar() as progress:
        yield from load_runs(list(paths), Options(progress=progress, **vars(reading)))


def pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    """`KEY=VALUE` texts of an option as a mapping. Raises UsageError."""
    values = {}
    for text in texts:
        key, sign, value = text.partition("=")
        if not (key and sign and value):
            raise UsageError(f"{option} {text}: want KEY=VALUE")
        values[key] = value
    return values


def require_complete(reports: Sequence[Report]) -> None:
    """Raise NoUsableInput where a run's input is incomplete, naming the first defect (`--strict`)."""
    for report in reports:
        if report.run.missing_ranks:
            missing = format_ranks(report.run.missing_ranks)
            raise NoUsableInput(f"--strict: {report.run.name}: no usable trace of {missing}")
        for item in report.health:
            if item.severity == "error":
                where = "" if item.rank is None else f"rank {item.rank}: "
                raise NoUsableInput(f"--strict: {report.run.name}: {where}{item.issue}; {item.effect}")


def say(message: str) -> None:
    """Print one line for the person at the terminal to stderr."""
    click.echo(f"ddprof: {clean(message)}", err=True)


def tell(text: str) -> None:
    """Print a result to stdout with characters that any terminal takes, ending in one newline."""
    click.echo(clean_lines(text.removesuffix("\n")))


Progress = Callable[[int, int, str], None]


@contextmanager
def progress_bar() -> Iterator[Progress | None]:
    """The callback `(done, total, label)` that draws the bar; None where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=None)

        def show(done: int, total: int, label: str) -> None:
            bar.update(task, completed=done, total=total, description=clean(label))

        yield show
