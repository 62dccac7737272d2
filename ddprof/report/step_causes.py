"""The ledger step by step: the variation of each cause, which a comparison takes for noise."""

from __future__ import annotations

import numpy as np

from ddprof.causes import CAUSES
from ddprof.report.model import Report


def step_causes(report: Report) -> dict[str, tuple[float, ...]]:
    """Microseconds of each cause in every step, mean over ranks; {} where the steps' detail is not known.

    Read from the report, or made from its ledger table (columns rank, step, cause, dur_ns). Ranks with fewer steps
    count in those that they have.
    """
    if report.ledger.per_step:
        return {cause: tuple(values) for cause, values in report.ledger.per_step.items()}
    table = report.tables.get("ledger")
    if table is None or not len(table):
        return {}
    ranks, steps = table["rank"], table["step"]
    keep = steps >= 0
    ranks, steps, causes = ranks[keep], steps[keep], table["cause"][keep].astype(np.int64)
    count = int(steps.max()) + 1 if len(steps) else 0
    sums = np.zeros((len(CAUSES), count))
    np.add.at(sums, (causes, steps), table["dur_ns"][keep] / 1e3)
    members = np.zeros(count)
    np.add.at(members, np.unique(np.stack([ranks, steps]), axis=1)[1], 1.0)
    means = sums / np.maximum(members, 1.0)
    return {cause: tuple(float(v) for v in means[i]) for i, cause in enumerate(CAUSES)}
