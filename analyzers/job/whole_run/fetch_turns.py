"""Loader workers that fetch one at a time: a lock, one file or one connection on a host.

A lock of the operating system knows no ranks: the workers of all ranks of a host may share it, and their fetches are
looked at together (one clock), then those of each rank. Two signs show it. Fetches under a lock as a whole end one
after another at equal distances. Where the lock is taken for each sample, the ends tell nothing, and the sampled lines
do: the more workers are seen asking for the lock, the less time is left in which nobody holds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from msgspec import Struct

from ddprof.analyzers.facts.model import RankFacts
from ddprof.sidecar import FetchSpan, TimedFetches
from ddprof.tables import Array

# Fetches in turn: so many at least, so many under way on average. Completions of workers that are independent of one
# another come as irregularly as those of a random process (coefficient of variation near 1, and two clusters where they
# keep their phases), those of workers that wait for one another as regularly as what they wait for.
LEAST_TURNS = 8
LEAST_AT_ONCE = 1.5
MOST_SPREAD = 0.25
# Samples of the workers, so that the share in a line is known to a tenth (binomial: sqrt(0.75 * 0.25 / 20) = 0.1).
LEAST_SAMPLES = 20
# Of the time that somebody waits for the lock, and somebody else thus holds it: more workers win a third at most.
LEAST_HELD = 0.75


class FetchTurns(Struct, frozen=True):
    """`each_ns`: time between two batches over all workers that share the lock; `alone_ns`: a fetch without waiting."""

    each_ns: float
    alone_ns: float


def with_turns(ranks: Sequence[RankFacts]) -> tuple[RankFacts, ...]:
    """The ranks, with the cost of turns (`TimedFetches.turn_ns`) on those whose workers fetch in turn."""
    by_host: dict[str, list[int]] = {}
    for position, facts in enumerate(ranks):
        if facts.sidecar.fetching is not None and facts.sidecar.fetching.spans:
            by_host.setdefault(facts.identity.host or f"of rank {position}", []).append(position)
    with_costs = list(ranks)
    for pool in by_host.values():
        loaders = [timed for p in pool if (timed := ranks[p].sidecar.fetching) is not None]
        shared = in_turn(loaders) if len(loaders) > 1 else None
        for position, timed in zip(pool, loaders, strict=True):
            turns, sharing = (shared, len(loaders)) if shared else (in_turn([timed]), 1)
            if turns is not None:  # a rank gets a batch with every round of those that share them
                told = timed.with_turns(round(turns.each_ns * sharing), sharing, round(turns.alone_ns))
                sidecar = ranks[position].sidecar.with_fetching(told)
                with_costs[position] = replace(ranks[position], sidecar=sidecar)
    return tuple(with_costs)


def in_turn(pool: Sequence[TimedFetches]) -> FetchTurns | None:
    """The turns of loaders that may share a resource; None where nothing shows any.

    Of fetches in turn, each takes the same from the end of the one before, however long it has waited for that: these
    times are far more alike than the fetches' own. Of fetches side by side it is the other way round.
    """
    start, dur = _together([timed.spans for timed in pool])
    if len(start) < LEAST_TURNS:
        return None
    order = np.argsort(start + dur, kind="stable")
    end = (start + dur)[order]
    lasted = max(1.0, float(end[-1] - start.min()))
    at_once = float(dur.sum()) / lasted
    if at_once < LEAST_AT_ONCE:
        return None
    turn = end[1:] - np.maximum(start[order][1:], end[:-1])
    turn_spread, spread = _spread(turn), _spread(dur)
    if turn_spread <= MOST_SPREAD and turn_spread <= spread / 2:
        each = float(np.median(turn))
        return FetchTurns(each, each)
    asking = _asking_share(pool)
    # At most all but one wait at once: somebody waits for at least this share of the time.
    if asking * at_once / (at_once - 1) < LEAST_HELD:
        return None
    return FetchTurns(lasted / len(start), float(np.mean(dur)) * (1 - asking))


def _together(loaders: Sequence[Sequence[FetchSpan]]) -> tuple[Array, Array]:
    """Start and length of the fetches while all of these loaders fetched."""
    rows = [np.array([(span.start_ns, span.dur_ns) for span in spans], np.int64) for spans in loaders]
    first = max(int(spans[:, 0].min()) for spans in rows)
    last = min(int(spans.sum(axis=1).max()) for spans in rows)
    every = np.concatenate(rows)
    start, dur = every[(every[:, 0] >= first) & (every.sum(axis=1) <= last)].T
    return start, dur


def _asking_share(pool: Sequence[TimedFetches]) -> float:
    """Share of the workers' fetch time spent waiting for a lock, by samples; 0 where too few."""
    lines = [line for timed in pool for line in timed.lines]
    samples = sum(max((line.samples / line.share for line in timed.lines), default=0.0) for timed in pool)
    asking = sum(line.samples for line in lines if line.kind == "lock")
    return asking / samples if samples >= LEAST_SAMPLES else 0.0


def _spread(times_ns: Array) -> float:
    """Coefficient of variation."""
    return float(times_ns.std() / max(1.0, float(times_ns.mean())))
