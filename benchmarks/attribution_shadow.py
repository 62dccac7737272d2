"""`python -m benchmarks.attribution_shadow DIR...`: the model of late ranks beside the rules, over labelled runs.

Prints every run in which the two differ, or the model is wrong, with the truth; what each gets right; how often the
model is right by how sure it is; and with --gates of each condition of the rules how many recordings it decides.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import click
import numpy as np

from benchmarks.attribution.gates import Gates, watched

SURE = (0.0, 0.5, 0.7, 0.9, 0.97, 0.995, 1.0)  # edges of the reliability table
ASKED = "--gates" in sys.argv
GATES = watched() if ASKED and __name__ == "__main__" else Gates()  # before what it watches is imported

from benchmarks.attribution.judge import Answer, Judged, by_model, by_rules, judge  # noqa: E402
from benchmarks.attribution.own_time import own_time  # noqa: E402
from benchmarks.scoring.score import labels, read_label  # noqa: E402
from ddprof.analyzers.engine import Options, load_runs  # noqa: E402
from ddprof.cli.main import guarded  # noqa: E402
from ddprof.errors import DdprofError  # noqa: E402
from ddprof.units import format_ranks, format_share  # noqa: E402

WHO = ("rules", "model")


@click.command()
@click.argument(
    "folders", type=click.Path(path_type=Path, exists=True, file_okay=False), metavar="DIR...", nargs=-1, required=True
)
@click.option("--gates", is_flag=True, help="Count what each condition of the rules decides, too.")
def command(folders: tuple[Path, ...], gates: bool) -> None:
    """Judge rules and model over the labelled runs below DIR; recordings without a label are shown only."""
    judged: dict[str, list[Judged]] = {who: [] for who in WHO}
    for folder in folders:
        for path in labels(folder):
            GATES.recording = str(path.parent)
            for line in compared(path, judged):
                click.echo(line)
    click.echo("\n".join(["", *totals(judged), "", *reliability(judged["model"])]))
    if gates:
        click.echo("\n".join(["", *gate_lines(GATES)]))


def compared(path: Path, judged: Mapping[str, list[Judged]]) -> Iterator[str]:
    """Judge one labelled run; lines where rules and model differ or the model is wrong."""
    label = read_label(path)
    try:
        runs = list(load_runs([str(path.parent / "traces")], Options(workers=1, cache=False)))
    except DdprofError as error:
        yield f"{path.parent.name}: {error}"
        return
    if len(runs) != 1 or len(runs[0].job.ranks) < 2:
        return
    answers = {"rules": by_rules(runs[0].report), "model": by_model(own_time(runs[0].measures))}
    both = {who: judge(label, answers[who]) for who in WHO}
    known = {who: one for who, one in both.items() if one is not None}
    for who, one in known.items():
        judged[who].append(one)
    if len({one.verdict for one in known.values()}) > 1 or any(not one.is_right for one in known.values()):
        truth = ", ".join(f"{f['id']} {f['acceptable_culprits'][0]}" for f in label["faults"]) or "healthy"
        yield f"{path.parent.name}: {truth}"
        for who, one in known.items():
            yield f"  {who} {'right' if one.is_right else 'WRONG'}: {_words(answers[who], label['step_us'])}"


def _words(answers: Sequence[Answer], step_us: float) -> str:
    told = (
        f"{a.id} {format_ranks(a.ranks)}, sure {format_share(a.sure)}, gains {format_share(a.gain_us / step_us)}"
        for a in answers
    )
    return "; ".join(told) or "nothing"


def totals(judged: Mapping[str, Sequence[Judged]]) -> Iterator[str]:
    """A line each: right in cause, and in cause and ranks, of runs with late ranks; accused runs of the others; errors
    of gain."""
    yield f"{'':<8}{'late':>6}{'cause':>9}{'+ ranks':>9}{'nobody':>8}{'accused':>9}{'gain error':>12}{'90 %':>9}"
    for who, runs in judged.items():
        late, nobody = [one for one in runs if one.cause is not None], [one for one in runs if one.cause is None]
        errors = [one.gain_error for one in late if one.gain_error is not None] or [float("nan")]
        shares = [
            float(np.mean([one.cause for one in late] or [np.nan])),
            float(np.mean([one.ranks for one in late] or [np.nan])),
        ]
        yield (
            f"{who:<8}{len(late):>6}{shares[0]:>9.1%}{shares[1]:>9.1%}{len(nobody):>8}"
            f"{sum(one.accused > 0 for one in nobody):>9}{np.median(errors):>12.2%}{np.quantile(errors, 0.9):>9.2%}"
        )


def reliability(judged: Sequence[Judged]) -> Iterator[str]:
    """Findings by how sure the model was, how many of them are right, and the mean distance between the two."""
    said = np.array([pair for one in judged for pair in one.said], float).reshape(-1, 2)
    apart = 0.0
    yield f"{'said':<14}{'findings':>9}{'right':>9}"
    for low, high in pairwise(SURE):
        mine = said[(said[:, 0] >= low) & ((said[:, 0] < high) | (high == SURE[-1]))]
        if len(mine):
            apart += len(mine) / len(said) * abs(mine[:, 0].mean() - mine[:, 1].mean())
            yield f"{f'{low:g} to {high:g}':<14}{len(mine):>9}{mine[:, 1].mean():>9.1%}"
    yield f"expected calibration error {apart:.1%}"


def gate_lines(gates: Gates) -> Iterator[str]:
    """A line for each gate that decides two recordings or fewer, and how many gates decide how many."""
    rows = gates.rows()
    yield f"{len(rows)} gates; {sum(not row[4] for row in rows)} decide no recording"
    for module, line, words, reached, decides in rows:
        if decides <= 2:
            yield f"{decides:>3} of {reached:>4}  {module}:{line}  {words}"


if __name__ == "__main__":
    warnings.filterwarnings("ignore", category=RuntimeWarning)
    sys.exit(guarded(lambda: command(prog_name="python -m benchmarks.attribution_shadow", standalone_mode=False)))
