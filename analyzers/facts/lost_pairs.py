"""Launch calls that are missing from a file together with their kernels.

Where a buffer drops both, no record lacks its other half, and an idle device looks like a slow host. Operators reveal
it: of two calls of one operator with equal shapes at the same place in two steps, one launched work and the other did
not. Extra work in one step (a library that tries kernels) is one-sided; lost records leave holes in both.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from ddprof.analyzers.facts.completeness import LOST_SHARE, MIN_LOST
from ddprof.analyzers.facts.cpu.operators import shapes_of
from ddprof.analyzers.facts.device import launch_rows
from ddprof.model import DEVICE_KINDS, HealthNote, Kind, RankTrace
from ddprof.tables import NULL, Array, Table, of_kinds
from ddprof.units import format_share


def lost_pairs_note(trace: RankTrace, steps: Table) -> list[HealthNote]:
    """A note where over LOST_SHARE of the launching calls, and MIN_LOST in two steps, launched in only one of the two,
    equally often in either.
    """
    steps_of_calls = _calls(trace, steps)
    lost = launches = 0
    for (call, launched), (other, other_launched) in pairwise(steps_of_calls):
        _, here, there = np.intersect1d(call, other, assume_unique=True, return_indices=True)
        one, two = launched[here], other_launched[there]
        lost += 2 * int(min((one & ~two).sum(), (two & ~one).sum()))
        launches += int((one | two).sum())
    if lost < MIN_LOST * max(len(steps) - 1, 1) or lost <= LOST_SHARE * launches:
        return []
    issue = f"{trace.path}: {format_share(lost / launches)} of the operators that launch work did so in one step only"
    return [HealthNote(issue, "launches are missing, so no finding about the host uses this time", "error")]


def _calls(trace: RankTrace, steps: Table) -> list[tuple[Array, Array]]:
    """Operator calls of each step, as numbers that pair equal calls across steps, and whether each launched work. An
    operator that is called more often with these shapes in another step does not pair.
    """
    events = trace.events
    at_ns, external = events["ts_ns"], events["external_id"]
    rows = np.flatnonzero((events["kind"] == Kind.CPU_OP) & (external != NULL))
    step = np.searchsorted(steps["mark_ns"], at_ns[rows], side="right") - 1
    inside = (step >= 0) & (at_ns[rows] < steps["mark_end_ns"][np.maximum(step, 0)])
    rows, step = rows[inside], step[inside]
    if not len(rows):
        return []
    kind = np.unique(np.stack((events["name"][rows], shapes_of(trace, rows))), axis=1, return_inverse=True)[1].ravel()
    order = np.lexsort((at_ns[rows], kind, step))
    rows, step, kind = rows[order], step[order], kind[order]
    first = np.flatnonzero(np.diff(kind, prepend=-1) | np.diff(step, prepend=-1))
    count = np.diff(first, append=len(rows))
    place = np.arange(len(rows)) - np.repeat(first, count)
    call = np.unique(np.stack((kind, np.repeat(count, count), place)), axis=1, return_inverse=True)[1].ravel()
    launched = np.isin(external[rows], _above_work(trace))
    return [(call[step == number], launched[step == number]) for number in range(len(steps))]


def _above_work(trace: RankTrace) -> Array:
    """External id of the operator above each device operation."""
    external = trace.events["external_id"]
    rows = np.flatnonzero(of_kinds(trace.events["kind"], DEVICE_KINDS))
    launch = launch_rows(trace, rows)
    own = external[rows]
    return np.where((own == NULL) & (launch >= 0), external[np.maximum(launch, 0)], own)
