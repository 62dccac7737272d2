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
    """One rank's extra work for its shard against its peers, us per step. `received`: all-to-all bytes over theirs."""

    position: int
    kind: str  # "experts" | "embedding tables"
    excess_us: float
    ratio: float  # its time for that work over the typical peer's
    operator: str  # that takes most of it
    received: float | None


def hot_shards(ranks: Sequence[RankFacts]) -> tuple[HotShard, ...]:
    """The ranks with a hot shard, the hottest first; () where no tokens or vectors are exchanged."""
    exchange = all((facts.comms["op"] == OP_CODE["all_to_all"]).any() and len(facts.steps) for facts in ranks)
    if len(ranks) < 2 or not exchange:
        return ()
    tables = [_by_place(facts) for facts in ranks]
    places = set.intersection(*(set(table) for table in tables))
    if not places:
        return ()
    keys = sorted(places)
    times = np.array([[table[key] for key in keys] for table in tables])
    usual = averages.typical_row(times)
    shards = [_hot(position, keys, times[position], usual, ranks) for position in range(len(ranks))]
    return tuple(sorted(filter(None, shards), key=lambda shard: -shard.excess_us))


def _hot(
    position: int, keys: Sequence[tuple[int, str]], times: Array, usual: Array, ranks: Sequence[RankFacts]
) -> HotShard | None:
    some = usual > 0
    ratio = np.where(some, times / np.where(some, usual, 1.0), 1.0)
    order = np.argsort(ratio, kind="stable")
    reach = np.cumsum(usual[order])
    if not reach[-1]:
        return None
    pace = max(1.0, float(ratio[order][np.searchsorted(reach, AT_PACE * reach[-1])]))
    more = some & (ratio > pace * (1 + LEAST_EXCESS))
    excess = np.where(more, times - pace * usual, 0.0)
    # A device that lacks power runs some operators longer wherever they are: those are no shard, if it is sent as much.
    received = _received(ranks, position)
    is_sent_more = received is not None and received > 1 + LEAST_EXCESS
    operators = np.array([operator for _, operator in keys])
    lookups = np.array([bool(LOOKUP.search(operator)) for operator in operators])
    for operator in np.unique(operators[more & ~lookups]):
        of_operator = operators == operator
        if usual[of_operator & more].sum() >= CONCENTRATED * usual[of_operator].sum() and of_operator.sum() > 1:
            alike = ratio[of_operator].min() > pace * (1 + LEAST_EXCESS)
            excess[of_operator] = 0.0 if alike and not is_sent_more else excess[of_operator]
    total = float(excess.sum())
    if total <= 0 or total < MOST * float(np.maximum(times - usual, 0).sum()):
        return None
    by_operator = {str(o): float(excess[operators == o].sum()) for o in np.unique(operators)}
    most = max(by_operator, key=lambda o: by_operator[o])
    counted = excess > 0
    return HotShard(
        position=position,
        kind="embedding tables" if excess[lookups].sum() >= MOST * total else "experts",
        excess_us=total / 1e3,
        ratio=float(times[counted].sum() / usual[counted].sum()),
        operator=most,
        received=received,
    )


def _by_place(facts: RankFacts) -> dict[tuple[int, str], float]:
    """Compute per step, ns, by place: number of the step's collectives launched before, and the operator (else the
    kernel).
    """
    ops, steps = facts.device_ops, len(facts.steps)
    rows, step = computed_in_steps(facts)
    called = np.sort(issued_ns(facts.comms))
    before = np.searchsorted(called, facts.steps["mark_ns"])
    place = np.searchsorted(called, issued_ns(ops)[rows]) - before[step]
    operator = ops["operator"][rows]
    kinds, local = distinct(place, np.where(operator == NO_STRING, ops["name"][rows], operator))
    spent = np.bincount(local, weights=(ops["end_ns"] - ops["start_ns"])[rows], minlength=kinds.shape[1])
    return {
        (int(where), facts.strings[int(what)]): float(us) / steps
        for (where, what), us in zip(kinds.T, spent, strict=True)
    }


def _received(ranks: Sequence[RankFacts], position: int) -> float | None:
    """Bytes of the all-to-alls in a rank's steps over the typical peer's; None where not recorded."""
    sizes = []
    for facts in ranks:
        rows = (facts.comms["op"] == OP_CODE["all_to_all"]) & (facts.comms["in_bytes"] != NULL)
        rows &= facts.is_issued_in_steps(facts.comms["start_ns"])
        sizes.append(float(facts.comms["in_bytes"][rows].sum()) / len(facts.steps))
    usual = averages.typical(np.array(sizes))
    return sizes[position] / usual if usual > 0 else None
