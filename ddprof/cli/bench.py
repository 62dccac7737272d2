"""`ddprof dev bench`: is what ddprof says true, on real jobs on this machine?"""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ddprof._version import __version__
from ddprof.errors import UsageError

if TYPE_CHECKING:
    from ddprof.bench.matrix import Result

SCHEMA = "ddprof.bench.workloads/1"
RESULTS, PAGE = Path("benchmarks/results"), Path("docs/workloads.md")


@click.group("bench")
def command() -> None:
    """Prove what ddprof says on real jobs, on this machine."""


@command.command("workloads")
@click.option("--only", multiple=True, metavar="NAME", help="Only these pairs. Repeatable.")
@click.option("--quick", is_flag=True, help="Five pairs, one of each kind.")
@click.option("--repeat", default=1, show_default=True, type=click.IntRange(1), help="Run everything so often.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("ddprof-runs/bench"),
    show_default=True,
    help="Where the run folders go.",
)
@click.option("--reuse", is_flag=True, help="Judge the runs that are already in --out again; run only what is missing.")
@click.option("--results", type=click.Path(path_type=Path, dir_okay=False), help="JSON file to write.")
@click.option("--list", "list_only", is_flag=True, help="List the pairs and stop.")
def workloads(
    only: tuple[str, ...], quick: bool, repeat: int, out: Path, reuse: bool, results: Path | None, list_only: bool
) -> None:
    """Run every workload with each fault and with its fix, and compare what ddprof predicted with what was measured.

    In a checkout the results go to benchmarks/results and, for the whole matrix, into docs/workloads.md. The exit code
    is 1 where a fault was not found or a job failed. NAME is workload, workload.fault or workload.fault.fix.
    """
    from ddprof.bench.pairs import pairs

    matrix = pairs(only, quick, _device())
    if list_only:
        for pair in matrix:
            click.echo(f"{pair.fixed.name:<44} {pair.truth.finding} {list(pair.ranks)}")
        return
    if not matrix:
        raise UsageError("no pair is left: --quick and --only have none in common")
    from ddprof.bench.matrix import run_matrix

    result = run_matrix(matrix, out, repeat, reuse, lambda text: click.echo(text, err=True))
    file = results or _default_file()
    file.write_text(json.dumps(document(result, repeat), indent=1) + "\n", encoding="utf-8")
    text = _markdown(result)
    if not only and not quick and PAGE.is_file():
        from ddprof.bench.table import put_into

        put_into(PAGE, text)
    click.echo(text)
    click.echo(f"wrote {file}", err=True)
    if result.wrong:
        raise SystemExit(1)


def document(result: Result, repeat: int) -> dict[str, Any]:
    """Everything that was measured, as plain values."""
    return {
        "schema": SCHEMA,
        "version": __version__,
        "date": _today(),
        "machine": _machine(),
        "repeat": repeat,
        "summary": result.summary,
        "skipped": list(result.skipped),
        "pairs": [j.as_dict() for j in result.judged],
        "trials": [j.as_dict() for j in result.trials],
    }


def _markdown(result: Result) -> str:
    from ddprof.bench.table import markdown

    return markdown(result.judged, result.summary, _today(), _machine())


def _default_file() -> Path:
    name = f"workloads-{_today()}.json"
    return RESULTS / name if RESULTS.is_dir() else Path(name)


def _today() -> str:
    return datetime.date.today().isoformat()


def _machine() -> str:
    return f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"


def _device() -> str:
    """What torch sees, cuda or cpu; this process stays without torch."""
    probe = "import torch; print('cuda' if torch.cuda.is_available() else 'cpu')"
    told = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=False)
    if told.returncode:
        raise UsageError("the workloads need torch in this environment")
    return told.stdout.strip()
