"""`python -m benchmarks.scoring`: how often ddprof is right, over runs whose truth is known."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Any

import click

from benchmarks.scoring.precision import precision as precision_of
from benchmarks.scoring.precision import write
from benchmarks.scoring.run_score import RunScore
from benchmarks.scoring.score import Score, labels, score
from ddprof.cli.load import progress_bar
from ddprof.cli.main import guarded
from ddprof.units import format_share

SCHEMA = "ddprof.score/1"
STEP_WORTH_TELLING = 0.05  # of the true step: beyond it the measured step explains other errors


@click.command()
@click.argument(
    "folders",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="LABELLED_DIR...",
    nargs=-1,
    required=True,
)
@click.option("--format", "form", type=click.Choice(("text", "json")), default="text", show_default=True)
@click.option("--workers", type=click.IntRange(1), help="Runs analyzed at once (default: by CPU).")
@click.option(
    "--precision", type=click.Path(path_type=Path, dir_okay=False), help="Write how often findings were right."
)
def command(folders: tuple[Path, ...], form: str, workers: int | None, precision: Path | None) -> None:
    """Score the analysis of every labelled run below LABELLED_DIR.

    A labelled run is a folder with traces/ and label.json, as benchmarks/oracle/generate.py writes them. A fault counts
    as found where a finding above "info" has an accepted identifier and exactly accepted culprit ranks. Any finding
    above "info" that no fault explains is a false accusation. Runs are also counted by the mess in their recordings.

    --precision writes the table that the confidence of findings is made of (analyzers/trust/precision.json is the one
    that ships with ddprof): findings said and findings right, by identifier and basis, and by doubt.
    """
    total = sum(len(labels(folder)) for folder in folders)
    done = 0
    corpora: dict[str, list[RunScore]] = {}
    with progress_bar() as progress:
        for folder in folders:
            runs = corpora.setdefault(folder.name, [])
            for run in score(folder, workers=workers or os.cpu_count() or 1):
                runs.append(run)
                done += 1
                if progress:
                    progress(done, total, run.name)
    if precision is not None:
        write(precision_of(corpora, date.today().isoformat()), precision)
    result = Score(tuple(run for runs in corpora.values() for run in runs))
    click.echo(as_json(result) if form == "json" else as_text(result))


def as_json(score: Score) -> str:
    """Summary, figures per cause and per mess, and every run as one JSON document; what does not apply is null."""
    runs = [{**asdict(run), "right": run.right} for run in score.runs]
    document = {
        "schema": SCHEMA,
        "summary": score.summary(),
        "causes": score.rows(),
        "messes": score.messes(),
        "runs": runs,
    }
    return json.dumps(_without_nan(document), indent=1, allow_nan=False)


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def as_text(score: Score) -> str:
    """The summary, a table per cause, one per mess where labels name some, a line for each run that is not right."""
    lines = [f"{name.replace('_', ' '):<22}{_figure(name, value)}" for name, value in score.summary().items()]
    lines += ["", f"{'cause':<28}{'runs':>5}{'recall':>9}{'culprits':>10}{'precision':>11}{'false':>7}"]
    for row in score.rows():
        shares = (
            _share(row[name]).rjust(width) for name, width in (("recall", 9), ("culprits", 10), ("precision", 11))
        )
        lines.append(f"{row['cause']:<28}{row['runs']:>5}{''.join(shares)}{row['false']:>7}")
    lines += mess_table(score.messes())
    wrong = [run for run in score.runs if not run.right]
    if wrong:
        lines += ["", "not right:", *(f"  {run.name}: {fault_text(run)}" for run in wrong)]
    return "\n".join(lines)


def mess_table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line per kind of mess under a heading; nothing where there is none."""
    if not rows:
        return []
    lines = ["", f"{'mess':<14}{'runs':>5}{'right':>8}{'healthy':>9}{'accused':>9}{'forbidden':>11}"
             f"{'gain error':>12}{'90 %':>9}{'step error':>12}"]  # fmt: skip
    for row in rows:
        counts = f"{row['healthy']:>9}{row['accused']:>9}{row['forbidden']:>11}"
        errors = "".join(
            _share(row[name]).rjust(width)
            for name, width in (("gain_error_median", 12), ("gain_error_p90", 9), ("wall_error_median", 12))
        )
        lines.append(f"{row['mess']:<14}{row['runs']:>5}{_share(row['right']):>8}{counts}{errors}")
    return lines


def fault_text(run: RunScore) -> str:
    """Errors in the answer to one run, in a few words."""
    said = [
        f"{fault} {'with wrong ranks' if named else 'not found'}"
        for fault, found, named in zip(run.faults, run.found, run.named, strict=True)
        if not found
    ]
    said += [f"false {finding}{' (forbidden)' if finding in run.forbidden else ''}" for finding in run.false]
    said += [f"forbidden {finding}" for finding in run.forbidden if finding not in run.false]
    said += [run.problem] if run.problem else []
    if run.wall_error is not None and run.wall_error > STEP_WORTH_TELLING:
        said.append(f"step off by {_share(run.wall_error)}")
    return "; ".join(said)


def _figure(name: str, value: float) -> str:
    if math.isnan(value):
        return "-"
    counted = name in ("runs", "faults", "healthy", "healthy_accused", "forbidden_said")
    return f"{value:.0f}" if counted else f"{100 * value:.4f} %" if "error" in name else format_share(value)


def _share(value: float | None) -> str:
    return "-" if value is None else format_share(value)


if __name__ == "__main__":
    sys.exit(guarded(lambda: command(prog_name="python -m benchmarks.scoring", standalone_mode=False)))
