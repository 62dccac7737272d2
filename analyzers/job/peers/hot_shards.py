"""Experts and embedding tables held by one rank and used by all: ranks with more requests than others.

Ranks that exchange tokens or vectors (all-to-all) run one program with unequal work. Compute between two collectives,
operator by operator, is compared with the same place on peers: a hot shard takes longer at places that follow the
exchange, a slow device wherever the same operators run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from ddprof import averages
from ddprof.analyzers.facts.model import NO_STRING, RankFacts
from ddprof.analyzers.facts.names import OP_CODE
from ddprof.analyzers.facts.work import computed_in_steps, issued_ns
from ddprof.tables import NULL, Array, distinct

LOOKUP = re.compile(r"embedding|lookup|fbgemm|\btbe\b|indexselect.*sparse", re.IGNORECASE)
AT_PACE = 0.25  # of a rank's compute: the quarter that compares best is work of which every rank has the same
LEAST_EXCESS = 0.02  # of a place's time over the peers' before it is more (limits.min_compute_excess of devices)
CONCENTRATED = 0.8  # of an operator's time, where it is longer: everywhere, so that the operator is slow, not the place
MOST = 0.5  # of what a rank computes longer than its peers


class HotShard(Struct, frozen=True):
    """One rank's extra work for its shard, us per step. `received`: all-to-all bytes over the typical peer's."""

    position: int
    kind: str  # "experts" | "embedding tables"
    excess_us: float  # over the typical peer
    of_mean: float  # its time for that work over the mean of all ranks
    operator: str  # that takes most of it
    received: float | None


def hot_shards(ranks: Sequence[RankFacts]) -> tuple[HotShard, ...]:
    """The ranks with a hot shard, the hottest first; () where no tokens or vectors are exchanged."""
    compared = _compared(ranks)
    if compared is None:
        return ()
    keys, times, sizes = compared
    shards = [_hot(position, keys, times.mean(axis=2), sizes.mean(axis=2)) for position in range(len(ranks))]
    return tuple(sorted(filter(None, shards), key=lambda shard: -shard.excess_us))


def hot_in_steps(ranks: Sequence[RankFacts]) -> dict[int, HotShard]:
    """The hot shard of the rank that computes longest, by step; steps in which it has none are left out."""
    compared = _compared(ranks)
    if compared is None:
        return {}
    keys, times, sizes = compared
    latest = np.argmax(times.sum(axis=1), axis=0).tolist()
    shards = {step: _hot(of, keys, times[:, :, step], sizes[:, :, step]) for step, of in enumerate(latest)}
    return {step: shard for step, shard in shards.items() if shard is not None}


def _compared(ranks: Sequence[RankFacts]) -> tuple[list[tuple[int, str]], Array, Array] | None:
    """Places, compute at each, ns, shape (ranks, places, steps), and bytes given to the first all-to-all and to all of
    them, shape (ranks, 2, steps); None where ranks exchange none. A rank may have no work at a place of its peers: no
    token chose its experts.
    """
    exchange = all((facts.comms["op"] == OP_CODE["all_to_all"]).any() and len(facts.steps) for facts in ranks)
    if len(ranks) < 2 or not exchange:
        return None
    steps = min(len(facts.steps) for facts in ranks)
    tables = [_by_place(facts, steps) for facts in ranks]
    keys = sorted(set.union(*(set(table) for table in tables)))
    nothing = np.zeros(steps)
    times = np.array([[table.get(key, nothing) for key in keys] for table in tables])
    return (keys, times, np.array([_given(facts, steps) for facts in ranks])) if keys else None


def _hot(position: int, keys: Sequence[tuple[int, str]], times: Array, sizes: Array) -> HotShard | None:
    usual, own = averages.typical_row(times), times[position]
    some = usual > 0
    ratio = np.where(some, own / np.where(some, usual, 1.0), 1.0)
    order = np.argsort(ratio, kind="stable")
    reach = np.cumsum(usual[order])
    if not reach[-1]:
        return None
    pace = max(1.0, float(ratio[order][np.searchsorted(reach, AT_PACE * reach[-1])]))
    first, received = (float(each[position] / averages.typical(each)) if (each > 0).all() else None for each in sizes.T)
    # A device that lacks power runs some operators longer wherever they are: those are no shard, if it is sent as much.
    is_sent_more = received is not None and received > 1 + LEAST_EXCESS
    more = (own > pace * (1 + LEAST_EXCESS) * usual) & (some | is_sent_more)
    excess = np.where(more, own - pace * usual, 0.0)
    operators = np.array([operator for _, operator in keys])
    lookups = np.array([bool(LOOKUP.search(operator)) for operator in operators])
    for operator in np.unique(operators[more & ~lookups]):
        of_operator = operators == operator
        if usual[of_operator & more].sum() >= CONCENTRATED * usual[of_operator].sum() and of_operator.sum() > 1:
            alike = ratio[of_operator].min() > pace * (1 + LEAST_EXCESS)
            excess[of_operator] = 0.0 if alike and not is_sent_more else excess[of_operator]
    before = np.array([place == 0 for place, _ in keys]) & ~lookups  # any exchange: its own input
    is_longer = own[before].sum() > pace * (1 + LEAST_EXCESS) * usual[before].sum()
    if is_longer and (first is None or first > 1 + LEAST_EXCESS):
        excess[~lookups] = 0.0
    total = float(excess.sum())
    if total <= 0 or total < MOST * float(np.maximum(own - usual, 0).sum()):
        return None
    by_operator = {str(o): float(excess[operators == o].sum()) for o in np.unique(operators)}
    counted = excess > 0
    return HotShard(
        position=position,
        kind="embedding tables" if excess[lookups].sum() >= MOST * total else "experts",
        excess_us=total / 1e3,
        of_mean=float(own[counted].sum() / times.mean(axis=0)[counted].sum()),
        operator=max(by_operator, key=lambda o: by_operator[o]),
        received=received,
    )


def _by_place(facts: RankFacts, steps: int) -> dict[tuple[int, str], Array]:
    """Compute in each step, ns, by place: number of the step's collectives launched before, and the operator (else the
    kernel).
    """
    ops = facts.device_ops
    rows, step = computed_in_steps(facts)
    rows, step = rows[step < steps], step[step < steps]
    called = np.sort(issued_ns(facts.comms))
    before = np.searchsorted(called, facts.steps["mark_ns"])
    place = np.searchsorted(called, issued_ns(ops)[rows]) - before[step]
    operator = ops["operator"][rows]
    kinds, local = distinct(place, np.where(operator == NO_STRING, ops["name"][rows], operator))
    spent = np.bincount(
        local * steps + step, weights=(ops["end_ns"] - ops["start_ns"])[rows], minlength=kinds.shape[1] * steps
    )
    return {
        (int(where), facts.strings[int(what)]): of_place
        for (where, what), of_place in zip(kinds.T, spent.reshape(-1, steps), strict=True)
    }


def _given(facts: RankFacts, steps: int) -> Array:
    """Bytes given to the first all-to-all of each step and to all of them, shape (2, steps); 0 where not recorded."""
    issued = issued_ns(facts.comms)
    rows = (facts.comms["op"] == OP_CODE["all_to_all"]) & (facts.comms["in_bytes"] != NULL)
    rows &= facts.is_issued_in_steps(issued)
    order = np.flatnonzero(rows)[np.argsort(issued[rows], kind="stable")]
    step = np.searchsorted(facts.marks[0], issued[order], side="right") - 1
    order, step = order[step < steps], step[step < steps]
    size, first = facts.comms["in_bytes"][order].astype(float), np.diff(step, prepend=-1) > 0
    return np.array([np.bincount(step, weights=weight, minlength=steps) for weight in (size * first, size)])
