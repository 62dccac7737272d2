"""Figures over all judged pairs: how often the verdict is right, how far predictions are from what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.workload_pairs.judge import Judgement


def summarize(judged: Sequence[Judgement], accused_healthy: Sequence[str], healthy: int) -> dict[str, Any]:
    """One number per claim; None where nothing counts towards it. Errors are shares of the measured step.

    A pair without a prediction (its fault was not found) counts as a wrong sign, and not towards errors and ranges:
    `pairs` and `predicted` say how many there are of each.
    """
    usable = [j for j in judged if not j.problem]
    priced = [j for j in usable if j.priced]
    predicted = [j for j in priced if j.error is not None]
    return {
        "pairs": len(judged),
        "failed": len(judged) - len(usable),
        "found": share([j.found for j in usable]),
        "leads": share([j.leads for j in usable]),
        "gone_after_fix": share([j.gone for j in usable]),
        "false_beside": share([bool(j.also_said) for j in usable]),
        "healthy_runs": healthy,
        "healthy_accused": list(accused_healthy),
        "predicted": len(predicted),
        **_errors("error", [j.error for j in predicted if j.error is not None]),
        **_errors("traced_error", [j.traced_error for j in predicted if j.traced_error is not None]),
        **_errors("replay_error", [j.replay_error for j in usable if j.replay_error is not None]),
        "sign_right": share([_sign_right(j) for j in priced]),
        "covered": share([bool(j.covered) for j in predicted]),
        "kendall_tau": kendall_tau([j.gains for j in predicted if j.gains is not None]),
    }


def share(flags: Sequence[bool]) -> float | None:
    """Share of those that are true; None for none."""
    return sum(flags) / len(flags) if flags else None


def _errors(name: str, errors: Sequence[float]) -> dict[str, float | None]:
    if not errors:
        return {f"{name}_median": None, f"{name}_p90": None}
    return {f"{name}_median": float(np.median(errors)), f"{name}_p90": float(np.quantile(errors, 0.9))}


def _sign_right(judged: Judgement) -> bool:
    return judged.gains is not None and (judged.gains[0] > 0) == (judged.gains[1] > 0)


def kendall_tau(gains: Sequence[tuple[float, float]]) -> float | None:
    """Kendall's tau-a between predicted and measured gains; None below two.

    Pairs in the same order less those in the other, as a share of all.
    """
    if len(gains) < 2:
        return None
    table = np.array(gains)
    order = np.sign(table[:, None] - table[None])
    upper = np.triu_indices(len(gains), 1)
    return float((order[..., 0] * order[..., 1])[upper].mean())
