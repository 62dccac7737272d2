"""A row per kind of mess: how often runs with it came out right, and how far gains and steps are off."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from benchmarks.scoring.run_score import RunScore

NO_MESS = "none"


def mess_rows(runs: Sequence[RunScore]) -> list[dict[str, Any]]:
    """Per mess in name order, and for runs without one; empty where no label names a mess.

    A run with several counts in each of their rows. Errors are shares of the true step, None where no run has one.
    """
    names = sorted({name for run in runs for name in run.mess})
    if not names:
        return []
    plain = [run for run in runs if not run.mess]
    rows = [_row(name, [run for run in runs if name in run.mess]) for name in names]
    return rows + ([_row(NO_MESS, plain)] if plain else [])


def _row(name: str, runs: Sequence[RunScore]) -> dict[str, Any]:
    healthy = [run for run in runs if run.clean]
    return {
        "mess": name,
        "runs": len(runs),
        "right": float(np.mean([run.right for run in runs])),
        "healthy": len(healthy),
        "accused": sum(bool(run.false) for run in healthy),
        "forbidden": sum(bool(run.forbidden) for run in runs),
        "gain_error_median": quantile((run.gain_error for run in runs), 0.5),
        "gain_error_p90": quantile((run.gain_error for run in runs), 0.9),
        "wall_error_median": quantile((run.wall_error for run in runs), 0.5),
    }


def quantile(values: Iterable[float | None], share: float) -> float | None:
    """A quantile of the values that are there; None for none."""
    known = [value for value in values if value is not None]
    return float(np.quantile(known, share)) if known else None
