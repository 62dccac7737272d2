"""The late ranks of a job: who, by what, how sure, and what else it may be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.attribution.own_time import EXTRA, OwnTime
from benchmarks.attribution.recurrence import Prior, Recurrence, recurrence
from benchmarks.attribution.splits import EVEN, WORK, are_fed_more, why_longer

# Chance of a rank to be steadily late by a cause, and now and then, and how far healthy ranks differ by it, relative to
# what the typical one spends. Of labelled generated runs: late batches come now and then, slow kernels in every step.
PRIORS: Mapping[str, Prior] = {
    "dataloader": Prior(0.02, 0.2, 0.4),
    "checkpoint": Prior(0.05, 0.5, 0.15),
    EXTRA: Prior(0.05, 0.3, 0.15),
    "compute": Prior(0.03, 0.003, 0.008),
    "host_launch": Prior(0.02, 0.003, 0.1),
    "host_sync": Prior(0.02, 0.01, 0.1),
    "gc": Prior(0.02, 0.01, 0.4),
    "allocator": Prior(0.02, 0.01, 0.15),
    "memcpy": Prior(0.01, 0.003, 0.15),
}
FINDING_OF = {
    "dataloader": "input.straggler",
    "checkpoint": "host.checkpoint",
    "host_launch": "straggler.host",
    "host_sync": "straggler.host",
    "gc": "host.gc",
    "allocator": "host.allocator",
    "memcpy": "input.pageable_copy",
}
ALONE = 5.0  # natural log units: lines of the script that one rank alone runs were seen on it
TURNS = "straggler.imbalance"
MOST_OF_HOST = 0.75  # of a host's ranks, before all of it is meant
FEWEST_TURNS = 2  # steps, and ranks, that events fall on


@dataclass(frozen=True)
class Rival:
    """Another reading of the same lateness, and its share of all belief in it."""

    id: str
    share: float


@dataclass(frozen=True)
class Late:
    """Ranks (positions; () where ranks take turns) that are late by some causes.

    `share`: of the step, mean excess of the rank that is furthest behind; `gain_us`: what all ranks win per step.
    """

    positions: tuple[int, ...]
    causes: tuple[str, ...]
    share: float
    gain_us: float
    rivals: tuple[Rival, ...]

    @property
    def id(self) -> str:
        """The likeliest reading."""
        return self.rivals[0].id

    @property
    def posterior(self) -> float:
        """Certainty of that reading."""
        return self.rivals[0].share


def attribute(own: OwnTime) -> tuple[Late, ...]:
    """Everybody who is late, the largest gain first; columns of the same ranks and steps together."""
    alone = np.where(np.isin(np.arange(len(own.rank_ids)), own.alone), ALONE, 0.0)
    seen = {
        cause: recurrence(own.excess(cause), own.level(cause), PRIORS[cause], alone if cause == "host_launch" else 0.0)
        for cause in own.causes
        if cause in PRIORS
    }
    named: dict[tuple[tuple[int, ...], bool], list[str]] = {}
    for cause, states in seen.items():
        positions = _named(own, states)
        if positions:
            # What is late in every step and what is late in some are two findings, on whichever ranks.
            is_steady = bool((states.steady > states.own)[list(positions)].all())
            named.setdefault((positions, is_steady), []).append(cause)
    found = [_late(own, positions, causes, seen) for (positions, _), causes in named.items()]
    found += _in_turn(own, seen["compute"], {p for late in found for p in late.positions})
    return tuple(sorted(found, key=lambda late: -late.gain_us))


def _named(own: OwnTime, states: Recurrence) -> tuple[int, ...]:
    """The ranks that are likelier late than not, at most half of all; all of a host that has most of them."""
    late = {int(p) for p in np.flatnonzero(states.late > EVEN)}
    for host in own.hosts:
        if len(host) > 1 and len(late & set(host)) >= MOST_OF_HOST * len(host) and 2 * len(host) <= len(own.rank_ids):
            late |= set(host)
    return tuple(sorted(late)) if 2 * len(late) <= len(own.rank_ids) else ()


def _late(own: OwnTime, positions: tuple[int, ...], causes: Sequence[str], seen: Mapping[str, Recurrence]) -> Late:
    """The columns of the same ranks as one finding: the reason is that of the largest."""
    where = list(positions)
    size = {cause: float(own.excess(cause)[where].mean()) for cause in causes}
    ordered = sorted(causes, key=lambda cause: -size[cause])
    first = ordered[0]
    is_compute = first in ("compute", EXTRA)
    why = why_longer(own, positions, first == EXTRA) if is_compute else {FINDING_OF[first]: 1.0}
    sure = min(max(float(seen[cause].late[where].min()) for cause in ordered), 1.0)
    rivals = [Rival(name, sure * chance) for name, chance in why.items()]
    rivals += [Rival("chance", 1.0 - sure)]
    beyond = np.sum([own.excess(cause)[where].mean(axis=1) for cause in ordered], axis=0)
    gain_us = _gain_us(own, where, ordered)
    if first == "compute" and max(why, key=lambda name: why[name]) == WORK and are_fed_more(own, where):
        gain_us *= 1 - len(where) / len(own.rank_ids)  # what is not fed to these ranks goes to the others
    return Late(positions, tuple(ordered), float(beyond.max()), gain_us, _ordered(rivals))


def _ordered(rivals: Sequence[Rival]) -> tuple[Rival, ...]:
    return tuple(sorted(rivals, key=lambda rival: -rival.share))


def _gain_us(own: OwnTime, where: Sequence[int], causes: Sequence[str]) -> float:
    """Gain in the step when these ranks become as fast as the typical one: the rank that is furthest behind goes, to
    where the next one is, and to no less than half of the rest; no more than the rest wait.
    """
    total = own.total_us
    relieved = total.copy()
    for cause in causes:
        relieved[where] -= np.maximum(0.0, own.excess(cause)[where]) * own.step_us
    rest = np.delete(total, where, axis=0)
    after = np.maximum(relieved.max(axis=0), np.median(rest, axis=0) if len(rest) else 0.0)
    gain_us = float(np.maximum(0.0, total.max(axis=0) - after).mean())
    waited_us = float(np.delete(own.met_us, where).max()) if len(rest) else np.inf
    return min(gain_us, waited_us)


def _in_turn(own: OwnTime, compute: Recurrence, late: set[int]) -> list[Late]:
    """Ranks that take turns at computing longer: events that befall any of them, in several steps."""
    events = compute.event > EVEN
    events[list(late)] = False
    ranks, steps = events.any(axis=1).sum(), events.any(axis=0).sum()
    if ranks < FEWEST_TURNS or steps < FEWEST_TURNS:
        return []
    excess = np.where(events, own.excess("compute"), 0.0).max(axis=0)
    spread = own.us[own.causes.index("compute")]
    gain_us = float((spread.max(axis=0) - spread.mean(axis=0)).mean())
    sure = float(np.sort(compute.event[events])[::-1][:FEWEST_TURNS].min())
    rivals = _ordered([Rival(TURNS, sure), Rival("chance", 1 - sure)])
    return [Late((), ("compute",), float(excess.mean()), min(gain_us, float(own.met_us.max())), rivals)]


def numbers(own: OwnTime, late: Late) -> tuple[int, ...]:
    """Rank numbers of a finding."""
    return tuple(own.rank_ids[p] for p in late.positions)
