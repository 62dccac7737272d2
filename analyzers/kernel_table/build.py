"""The kernel table of a run, from the facts of its ranks; made when somebody asks for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.model import NO_STRING, RankFacts, Work
from ddprof.analyzers.facts.operations.choose import rank_work, runs_operators
from ddprof.analyzers.facts.operations.model import RankWork
from ddprof.analyzers.job.model import JobFacts
from ddprof.analyzers.kernel_table.distinct import distinct
from ddprof.analyzers.kernel_table.model import KERNELS, KINDS, KernelTable
from ddprof.analyzers.kernel_table.path import on_path_ns, path_length_ns
from ddprof.analyzers.kernel_table.roofline import costs
from ddprof.analyzers.kernel_table.source import lines, modules
from ddprof.model import RankTrace
from ddprof.tables import Array, Table, concat


def build_kernel_table(job: JobFacts, path: Table, read_again: Callable[[str], RankTrace]) -> KernelTable:
    """KERNELS of all ranks. `path`: CRITICAL of the run, empty where it could not be replayed. `read_again`: a rank's
    trace by the path of its facts, for CPU ranks. Raises NoUsableInput where that is gone.
    """
    steps = min((len(facts.steps) for facts in job.ranks), default=0)
    tables, by_step, length_ns = [KERNELS.empty()], [np.empty((0, steps))], path_length_ns(path)
    for position, facts in enumerate(job.ranks):
        if len(facts.steps):
            work = rank_work(facts, read_again)
            on_path = on_path_ns(job, path, position, work)
            rows, busy_us = _rank_rows(facts, job.rank_ids[position], work, on_path, length_ns)
            tables.append(rows)
            by_step.append(busy_us[:, :steps])
    return KernelTable(concat(KERNELS, tables), np.concatenate(by_step), any(map(runs_operators, job.ranks)))


def _rank_rows(facts: RankFacts, rank: int, work: RankWork, on_path: Array, path_ns: int) -> tuple[Table, Array]:
    """KERNELS of one rank, the busiest first, and the busy time of each row in each step, us."""
    operations, busy, steps = work.operations, work.busy, len(facts.steps)
    inside = intervals.overlap(facts.steps.bounds, operations["start_ns"], operations["end_ns"])
    keep = np.flatnonzero(inside > 0)
    (module, module_texts), (line, line_texts) = modules(facts, operations), lines(facts, operations)
    key = np.stack([operations["work"], operations["name"], operations["operator"], module, line]).astype(np.int64)
    which, first = distinct(key[:, keep])
    count = len(first)
    row_of = np.full(len(operations), -1)
    row_of[keep] = which
    busy_us = np.zeros((count, steps))
    np.add.at(busy_us, (row_of[busy["operation"]], busy["step"]), (busy["end_ns"] - busy["start_ns"]) / 1e3)

    def per_step(values: Array) -> Array:
        return np.bincount(which, weights=values[keep], minlength=count) / steps

    flops, size_bytes, least_ns = costs(facts, operations)
    total_us = per_step(inside / 1e3)
    kinds, names, operators, module, line = key[:, keep[first]].tolist()
    columns: dict[str, Any] = {
        "rank": np.full(count, rank),
        "kind": [KINDS[Work(kind)] for kind in kinds],
        "kernel": [_text(facts, name) for name in names],
        "operator": [_text(facts, operator) for operator in operators],
        "module": [module_texts[number] for number in module],
        "line": [line_texts[number] for number in line],
        "calls": per_step(np.ones(len(operations))),
        "total_us": total_us,
        "busy_us": busy_us.sum(axis=1) / steps,
        "step_share": busy_us.sum(axis=1) * 1e3 / float((facts.steps["end_ns"] - facts.steps["start_ns"]).sum()),
        "path_share": per_step(on_path) * steps / path_ns if path_ns else np.full(count, np.nan),
        "flops": _known(per_step, flops),
        "bytes": _known(per_step, size_bytes),
        "roofline_share": _known(per_step, least_ns) / 1e3 / np.where(total_us > 0, total_us, np.nan),
    }
    order = np.argsort(-columns["busy_us"], kind="stable")
    return KERNELS.table(columns).take(order), busy_us[order]


def _text(facts: RankFacts, number: int) -> str:
    return "" if number == NO_STRING else facts.strings[number]


def _known(per_step: Callable[[Array], Array], values: Array) -> Array:
    """Sums of rows of which every call is known; NaN of the others."""
    missing = per_step(np.isnan(values).astype(float))
    return np.where(missing > 0, np.nan, per_step(np.nan_to_num(values)))
