"""The kernel table over all ranks, by any of its texts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ddprof.analyzers.kernel_table.model import INSIDE, KernelTable
from ddprof.tables import Array


@dataclass(frozen=True)
class Merged:
    """One row over all ranks, per step. Times and calls are means over all ranks, whether or not they have it.

    `lowest_us`, `highest_us`: busy time among the `ranks` that have it; `slowest`: the rank of the latter.
    `flops_per_s` and `bytes_per_s` are of the total time. None: not known.
    """

    key: tuple[str, ...]
    calls: float
    total_us: float
    busy_us: float
    step_share: float
    path_share: float | None
    lowest_us: float
    highest_us: float
    slowest: int
    ranks: int
    flops_per_s: float | None
    bytes_per_s: float | None
    roofline_share: float | None


def merged(table: KernelTable, by: Sequence[str], shows: Callable[[int], bool] = lambda rank: True) -> list[Merged]:
    """Rows by some of the columns "kind", "kernel", "operator", "module", "line", the busiest first.

    `shows`: which ranks count.
    """
    rows = table.rows.take(np.array([shows(rank) for rank in table.rows["rank"].tolist()], bool))
    ranks = np.unique(rows["rank"])
    which, keys = numbered(table, by)
    which = which[np.array([shows(rank) for rank in table.rows["rank"].tolist()], bool)]
    used = np.unique(which)
    busy = np.zeros((len(ranks), len(keys)))
    place = np.searchsorted(ranks, rows["rank"])
    np.add.at(busy, (place, which), rows["busy_us"])
    has = np.zeros(busy.shape, bool)
    has[place, which] = True

    def summed(values: Array) -> Array:
        return np.bincount(which, weights=values, minlength=len(keys))

    calls, total = (summed(rows[name]) / max(1, len(ranks)) for name in ("calls", "total_us"))
    # Of the mean step, as the ledger's: ranks with longer steps count for more.
    of_rank = np.bincount(place, weights=rows["step_share"], minlength=len(ranks))
    step_us = busy.sum(axis=1)[of_rank > 0] / of_rank[of_rank > 0]
    share = busy.sum(axis=0) / max(1, len(ranks)) / max(float(step_us.mean()) if len(step_us) else 0.0, 1e-9)
    path, flops, size_bytes = (summed(rows[name]) for name in ("path_share", "flops", "bytes"))
    roofline = summed(rows["roofline_share"] * rows["total_us"])
    seconds = summed(rows["total_us"]) / 1e6
    groups = [
        Merged(
            key=keys[at],
            calls=float(calls[at]),
            total_us=float(total[at]),
            busy_us=float(busy[:, at].mean()),
            step_share=float(share[at]),
            path_share=_known(path[at]),
            lowest_us=float(busy[has[:, at], at].min()),
            highest_us=float(busy[:, at].max()),
            slowest=int(ranks[busy[:, at].argmax()]),
            ranks=int(has[:, at].sum()),
            flops_per_s=_rate(flops[at], seconds[at]),
            bytes_per_s=_rate(size_bytes[at], seconds[at]),
            roofline_share=_rate(roofline[at], seconds[at] * 1e6),
        )
        for at in used.tolist()
    ]
    return sorted(groups, key=lambda row: (-row.busy_us, -row.total_us, row.key))


def numbered(table: KernelTable, by: Sequence[str]) -> tuple[Array, list[tuple[str, ...]]]:
    """The number of each row's combination of texts in these columns, and the texts of each number."""
    numbers: dict[tuple[str, ...], int] = {}
    texts = zip(*(table.rows[name].tolist() for name in by), strict=True)
    which = np.array([numbers.setdefault(key, len(numbers)) for key in texts], np.int64)
    return which, list(numbers)


def by_step_us(table: KernelTable) -> dict[tuple[str, str], list[float]]:
    """Busy time of each (kernel, kind) in every step, us, mean over all ranks; shape (steps,)."""
    which, keys = numbered(table, ("kernel", "kind"))
    total = np.zeros((len(keys), table.busy_by_step_us.shape[1]))
    np.add.at(total, which, table.busy_by_step_us)
    total /= max(1, len(np.unique(table.rows["rank"])))
    return {(name, kind): values for (name, kind), values in zip(keys, total.tolist(), strict=True)}


def inclusive_us(rows: Sequence[Merged]) -> dict[str, float]:
    """Busy time of each module with all that it calls, us per step. `rows`: by "module" only."""
    inclusive: dict[str, float] = {}
    for row in rows:
        parts = row.key[0].split(INSIDE)
        for depth in range(1, len(parts) + 1):
            path = INSIDE.join(parts[:depth])
            inclusive[path] = inclusive.get(path, 0.0) + row.busy_us
    return inclusive


def _rate(amount: float, time: float) -> float | None:
    return _known(amount / time) if amount and time else None


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
