"""`python -m benchmarks.workload_pairs`: is what ddprof says true, on real jobs on this machine?"""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import click

from benchmarks.workload_pairs.matrix import Result, run_matrix
from benchmarks.workload_pairs.pairs import pairs
from benchmarks.workload_pairs.table import markdown, put_into
from ddprof._version import __version__
from ddprof.cli.main import guarded
from ddprof.errors import UsageError

SCHEMA = "ddprof.bench.workloads/1"
RESULTS, PAGE = Path("benchmarks/results"), Path("docs/regression-suite.md")


@click.command()
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
def command(
    only: tuple[str, ...], quick: bool, repeat: int, out: Path, reuse: bool, results: Path | None, list_only: bool
) -> None:
    """Run every workload with each fault and with its fix, and compare what ddprof predicted with what was measured.

    The results go to benchmarks/results and, for the whole matrix, into docs/regression-suite.md. The exit code
    is 1 where a fault was not found or a job failed. NAME is workload, workload.fault or workload.fault.fix.
    """
    matrix = pairs(only, quick, _device())
    if list_only:
        for pair in matrix:
            click.echo(f"{pair.fixed.name:<44} {pair.truth.finding} {list(pair.ranks)}")
        return
    if not matrix:
        raise UsageError("no pair is left: --quick and --only have none in common")
    result = run_matrix(matrix, out, repeat, reuse, lambda text: click.echo(text, err=True))
    file = results or _default_file()
    file.write_text(json.dumps(document(result, repeat), indent=1) + "\n", encoding="utf-8")
    text = markdown(result.judged, result.summary, _today(), _machine())
    if not only and not quick and PAGE.is_file():
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


def _default_file() -> Path:
    name = f"workloads-{_today()}.json"
    return RESULTS / name if RESULTS.is_dir() else Path(name)


def _today() -> str:
    return datetime.date.today().isoformat()


def _machine() -> str:
    return f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"


def _device() -> str:
    """The device that torch sees, cuda or cpu; this process does not import torch."""
    probe = "import torch; print('cuda' if torch.cuda.is_available() else 'cpu')"
    told = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=False)
    if told.returncode:
        raise UsageError("the workloads need torch in this environment")
    return told.stdout.strip()


if __name__ == "__main__":
    sys.exit(guarded(lambda: command(prog_name="python -m benchmarks.workload_pairs", standalone_mode=False)))
