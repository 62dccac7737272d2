"""The kernel table: one row per rank, kernel, operator, module and line."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec import Struct

from ddprof import intervals
from ddprof.analyzers.facts.model import RankFacts, Work
from ddprof.analyzers.facts.script.phases import certain
from ddprof.analyzers.facts.script.tree import call_tree
from ddprof.tables import NULL, Array, Column, Schema, Table

INSIDE = " > "  # between the modules of a path
KINDS = {Work.COMPUTE: "compute", Work.COMM: "communication", Work.COPY: "copy"}

KERNELS = Schema(
    "kernels",
    Column("rank", "int64", "rank number"),
    Column("kind", "str", "compute, communication or copy"),
    Column("kernel", "str", "kernel, collective or copy; on a CPU rank an operator; '' for work of no operator"),
    Column("operator", "str", "innermost operator above the launch; on a CPU rank the outermost; '' if not recorded"),
    Column("module", "str", "nn.Module calls around it, outermost first; '' if not recorded"),
    Column("line", "str", "innermost line of the script's own code around it; '' if not recorded"),
    Column("calls", "float64", "calls per step"),
    Column("total_us", "float64", "microseconds per step from start to end of each call"),
    Column("busy_us", "float64", "microseconds per step of the rank's busy time: each moment is in one row"),
    Column("step_share", "float64", "busy_us over the rank's step"),
    Column("path_share", "float64", "share of the critical path of all ranks", nullable=True),
    Column("flops", "float64", "floating-point operations per step, from shapes", nullable=True),
    Column("bytes", "float64", "least bytes that they move per step, from shapes and types", nullable=True),
    Column("roofline_share", "float64", "least time that the device needs for these, over total_us", nullable=True),
)


class KernelTable(Struct, frozen=True):
    """KERNELS of a run. `busy_by_step_us`: a line per row, a column per step that every rank has.

    `runs_operators`: the rows are operators of CPU ranks, without those that they call.
    """

    rows: Table
    busy_by_step_us: Array
    runs_operators: bool


# The kernel table over all ranks, by any of its texts.


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
    is_shown = np.array([shows(rank) for rank in table.rows["rank"].tolist()], bool)
    rows, (which, keys) = table.rows.take(is_shown), numbered(table, by)
    ranks, which = np.unique(rows["rank"]), which[is_shown]
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


# Source of operations: the module of the model and the script line that called them.

UNKNOWN = 0  # number of the text ""


def modules(facts: RankFacts, operations: Table) -> tuple[Array, list[str]]:
    """The module around each call: numbers of texts, and the texts ("Gpt_0 > Block_1 > Linear_3"; "" first)."""
    stacks, texts = facts.module_stacks, [""]
    for name, outer in zip(stacks["name"].tolist(), stacks["outer"].tolist(), strict=True):
        texts.append(name if outer == NULL else f"{texts[outer + 1]}{INSIDE}{name}")
    number = np.full(len(operations), UNKNOWN)
    for thread in np.unique(facts.module_spans["track"]).tolist():
        spans = facts.module_spans.take(facts.module_spans["track"] == thread)
        on_thread = np.flatnonzero((operations["thread"] == thread) & (operations["called_ns"] != NULL))
        row = intervals.row_at(spans.bounds, operations["called_ns"][on_thread])
        number[on_thread] = np.where(row >= 0, spans["stack"][row] + 1, UNKNOWN)
    return number, texts


def lines(facts: RankFacts, operations: Table) -> tuple[Array, list[str]]:
    """The innermost user line around each call, and the text of lines. Kernels launched by autograd's thread count to
    the training thread's line at that time; between two samples the line is unknown.
    """
    tree = call_tree(facts)
    number = np.full(len(operations), UNKNOWN)
    if not len(tree) or not len(facts.script_spans):
        return number, [""]
    frame = np.where(tree.folded >= 0, tree.frame[np.maximum(tree.folded, 0)], -1)
    texts = ["", *(tree.words(row) for row in range(len(tree.frames)))]
    threads = np.unique(facts.script_spans["track"])
    main = NULL if facts.main_thread is None else facts.main_thread
    of = np.where(np.isin(operations["thread"], threads), operations["thread"], main)
    for thread in threads.tolist():
        spans = facts.script_spans.take(facts.script_spans["track"] == thread)
        on_thread = np.flatnonzero((of == thread) & (operations["called_ns"] != NULL))
        called_ns = operations["called_ns"][on_thread]
        row = intervals.row_at(spans.bounds, called_ns)
        inside = (row >= 0) & intervals.contains(certain(spans, frame[spans["stack"]]), called_ns)
        number[on_thread] = np.where(inside, frame[spans["stack"][row]] + 1, UNKNOWN)
    return number, texts
