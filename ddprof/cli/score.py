"""`ddprof dev score`: how often ddprof is right, over runs whose truth is known."""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ddprof.cli.progress import progress_bar
from ddprof.units import format_share

if TYPE_CHECKING:
    from ddprof.bench.score import RunScore, Score

SCHEMA = "ddprof.score/1"


@click.command("score")
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False), metavar="LABELLED_DIR")
@click.option("--format", "form", type=click.Choice(("text", "json")), default="text", show_default=True)
@click.option("--workers", type=click.IntRange(1), help="Runs analyzed at once (default: by CPU).")
def command(folder: Path, form: str, workers: int | None) -> None:
    """Score the analysis of every labelled run below LABELLED_DIR.

    A labelled run is a folder with traces/ and label.json, as benchmarks/oracle/generate.py writes them. A fault counts
    as found where a finding above "info" has an accepted identifier and exactly accepted culprit ranks. Any finding
    above "info" that no fault explains is a false accusation.
    """
    from ddprof.bench.score import Score, labels, score

    total = len(labels(folder))
    runs: list[RunScore] = []
    with progress_bar() as progress:
        for run in score(folder, workers=workers or os.cpu_count() or 1):
            runs.append(run)
            if progress:
                progress(len(runs), total, run.name)
    result = Score(tuple(runs))
    click.echo(as_json(result) if form == "json" else as_text(result))


def as_json(score: Score) -> str:
    """Summary, figures per cause and every run as one JSON document; what does not apply is null."""
    runs = [{**asdict(run), "right": run.right} for run in score.runs]
    document = {"schema": SCHEMA, "summary": score.summary(), "causes": score.rows(), "runs": runs}
    return json.dumps(_without_nan(document), indent=1, allow_nan=False)


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def as_text(score: Score) -> str:
    """The summary, a table per cause, and one line for every run that is not right."""
    lines = [f"{name.replace('_', ' '):<22}{_figure(name, value)}" for name, value in score.summary().items()]
    lines += ["", f"{'cause':<28}{'runs':>5}{'recall':>9}{'culprits':>10}{'precision':>11}{'false':>7}"]
    for row in score.rows():
        shares = (
            _share(row[name]).rjust(width) for name, width in (("recall", 9), ("culprits", 10), ("precision", 11))
        )
        lines.append(f"{row['cause']:<28}{row['runs']:>5}{''.join(shares)}{row['false']:>7}")
    wrong = [run for run in score.runs if not run.right]
    if wrong:
        lines += ["", "not right:", *(f"  {run.name}: {fault_text(run)}" for run in wrong)]
    return "\n".join(lines)


def fault_text(run: RunScore) -> str:
    """What is wrong with the answer to one run, in a few words."""
    said = [
        f"{fault} {'with wrong ranks' if named else 'not found'}"
        for fault, found, named in zip(run.faults, run.found, run.named, strict=True)
        if not found
    ]
    said += [f"false {finding}" for finding in run.false]
    return "; ".join([*said, *([run.problem] if run.problem else [])])


def _figure(name: str, value: float) -> str:
    if math.isnan(value):
        return "-"
    counted = name in ("runs", "faults", "healthy", "healthy_accused")
    return f"{value:.0f}" if counted else f"{100 * value:.4f} %" if "error" in name else format_share(value)


def _share(value: float | None) -> str:
    return "-" if value is None else format_share(value)
