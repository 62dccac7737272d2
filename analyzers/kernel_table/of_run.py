"""Critical path and kernel table of an open run, computed lazily and once."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ddprof import intervals
from ddprof.analyzers.engine import LoadedRun
from ddprof.analyzers.facts.kernels import factors_of, is_attention, tensors_of
from ddprof.analyzers.facts.model import NO_STRING, RankFacts, Work
from ddprof.analyzers.facts.operations import RankWork, held, rank_work
from ddprof.analyzers.facts.work import computes
from ddprof.analyzers.job.model import JobFacts
from ddprof.analyzers.kernel_table.model import KERNELS, KINDS, KernelTable, lines, modules
from ddprof.analyzers.replay.critical import critical_path
from ddprof.causes import CAUSE_CODE
from ddprof.derived_once import remembered
from ddprof.errors import NoUsableInput
from ddprof.hardware import memory_bandwidth, peak_flops
from ddprof.model import RankTrace
from ddprof.readers import read
from ddprof.tables import NULL, Array, Table, concat, distinct


@remembered
def path_of(run: LoadedRun) -> Table:
    """CRITICAL of the run."""
    return critical_path(run.job, run.pricer.graph)


@remembered
def kernels_of(run: LoadedRun) -> KernelTable:
    """KERNELS of the run. Raises NoUsableInput where the trace of a CPU rank, which is read again, is gone."""

    def read_again(path: str) -> RankTrace:
        try:
            return read(run.sources[path])
        except OSError as error:
            raise NoUsableInput(f"{path}: cannot be read again: {error.strerror}") from error

    return _build_kernel_table(run.job, path_of(run), read_again)


def _build_kernel_table(job: JobFacts, path: Table, read_again: Callable[[str], RankTrace]) -> KernelTable:
    """KERNELS of all ranks. `path`: CRITICAL of the run, empty where it could not be replayed. `read_again`: a rank's
    trace by the path of its facts, for CPU ranks. Raises NoUsableInput where that is gone.
    """
    steps = min(len(facts.steps) for facts in job.ranks)
    tables, by_step = [KERNELS.empty()], [np.empty((0, steps))]
    length_ns = int((path["end_ns"] - path["start_ns"]).sum())  # its pieces do not overlap
    for position, facts in enumerate(job.ranks):
        work = rank_work(facts, read_again)
        on_path = _on_path_ns(job, path, position, work)
        rows, busy_us = _rank_rows(facts, job.rank_ids[position], work, on_path, length_ns)
        tables.append(rows)
        by_step.append(busy_us[:, :steps])
    return KernelTable(concat(KERNELS, tables), np.concatenate(by_step), any(map(computes, job.ranks)))


def _rank_rows(facts: RankFacts, rank: int, work: RankWork, on_path: Array, path_ns: int) -> tuple[Table, Array]:
    """KERNELS of one rank, the busiest first, and the busy time of each row in each step, us."""
    operations, busy, steps = work.operations, work.busy, len(facts.steps)
    inside = intervals.overlap(facts.steps.bounds, operations["start_ns"], operations["end_ns"])
    keep = np.flatnonzero(inside > 0)
    (module, module_texts), (line, line_texts) = modules(facts, operations), lines(facts, operations)
    key = np.stack([operations["work"], operations["name"], operations["operator"], module, line]).astype(np.int64)
    kinds_of_row, which = distinct(*key[:, keep])
    count = kinds_of_row.shape[1]
    row_of = np.full(len(operations), -1)
    row_of[keep] = which
    busy_us = np.zeros((count, steps))
    np.add.at(busy_us, (row_of[busy["operation"]], busy["step"]), (busy["end_ns"] - busy["start_ns"]) / 1e3)

    def per_step(values: Array) -> Array:
        return np.bincount(which, weights=values[keep], minlength=count) / steps

    flops, size_bytes, least_ns = _costs(facts, operations)
    total_us = per_step(inside / 1e3)
    kinds, names, operators, module, line = kinds_of_row.tolist()
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
    """Sums of rows whose calls are all known; NaN for the others."""
    missing = per_step(np.isnan(values).astype(float))
    return np.where(missing > 0, np.nan, per_step(np.nan_to_num(values)))


def _on_path_ns(job: JobFacts, path: Table, position: int, work: RankWork) -> Array:
    """Nanoseconds on CRITICAL, shape (operations,). The path runs along streams; on a CPU rank along its host."""
    operations = work.operations
    on_path_ns = np.zeros(len(operations), np.int64)
    rank_path = path.take(path["rank"] == position)
    shift = job.clock.offset_ns(position)
    start, end = rank_path["start_ns"] + shift, rank_path["end_ns"] + shift
    for track in np.unique(rank_path["track"]).tolist():
        here = rank_path["track"] == track
        if track == NULL:
            here &= rank_path["cause"] == CAUSE_CODE["compute"]
            pieces = *work.busy.bounds, work.busy["operation"]
        else:
            pieces = held(operations, np.flatnonzero(operations["track"] == track))
        lo, hi, piece, _ = intervals.intersect_rows(pieces[:2], intervals.union(start[here], end[here]))
        np.add.at(on_path_ns, pieces[2][piece], hi - lo)
    return on_path_ns


def _costs(facts: RankFacts, operations: Table) -> tuple[Array, Array, Array]:
    """FLOPs, least bytes moved and least time (ns) of each operation, float; NaN where it is not known.

    The least time in which their device could do both is the roofline model (Williams, Waterman, Patterson 2009).
    """
    flops, size_bytes, least_ns = np.full((3, len(operations)), np.nan)
    groups = facts.kernel_groups
    kernels = np.flatnonzero(operations["work"] == Work.COMPUTE)
    if not len(groups) or not len(kernels):
        return flops, size_bytes, least_ns
    row_of = {
        (n, s): row for row, (n, s) in enumerate(zip(groups["name"].tolist(), groups["shape"].tolist(), strict=True))
    }
    keys = np.stack([operations[name][kernels].astype(np.int64) for name in ("name", "shape", "operator")])
    kinds, which = distinct(*keys)
    costs = np.full((3, kinds.shape[1]), np.nan)
    for column, (name, shape, operator) in enumerate(kinds.T.tolist()):
        row = row_of.get((name, shape))
        if row is not None and NO_STRING not in (shape, operator):
            costs[:, column] = _cost(facts, row, facts.strings[operator], facts.strings[shape])
    flops[kernels], size_bytes[kernels], least_ns[kernels] = costs[:, which]
    return flops, size_bytes, least_ns


def _cost(facts: RankFacts, group: int, operator: str, shapes: str) -> tuple[float, float, float]:
    groups, name = facts.kernel_groups, operator.removeprefix("aten::")
    flops = float(groups["flops"][group]) / max(1, int(groups["count"][group]))
    if "conv" in name:
        return math.nan, math.nan, math.nan  # strides are not recorded: an upper bound is no roofline
    size_bytes = least_bytes(name, tensors_of(shapes), int(groups["element_bytes"][group]))
    if not flops > 0:  # none: a helper of the kernel that does the work, whose time is part of what the operator takes
        return (math.nan, math.nan, math.nan) if math.isnan(flops) else (0.0, 0.0, 0.0)
    peak = peak_flops(facts.device.name, fp32=bool(groups["is_fp32"][group]))
    rate = memory_bandwidth(facts.device.name)
    if peak is None or rate is None or not math.isfinite(size_bytes):
        return flops, size_bytes, math.nan
    return flops, size_bytes, 1e9 * max(flops / peak, size_bytes / rate)


def least_bytes(name: str, tensors: list[list[int]], element_bytes: int) -> float:
    """Least bytes that an operator reads and writes, each operand and the result once; NaN where unknown."""
    if element_bytes == NULL or not tensors:
        return math.nan
    factors = factors_of(name, tensors)
    if factors is not None:
        left, right = factors
        result = math.prod(left[:-1]) * (right[0] if name == "linear" else right[-1])
        return float((math.prod(left) + math.prod(right) + result) * element_bytes)
    if is_attention(name) and len(tensors) > 2:  # the queries are as large as the result; a backward pass moves more
        return float((math.prod(tensors[0]) + sum(map(math.prod, tensors[:3]))) * element_bytes)
    return math.nan
