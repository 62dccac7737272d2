"""The first cause where several groups are stuck: waits followed to a rank that waits for no other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ddprof.slices.hangs import model
from ddprof.slices.hangs.judging.exits import is_own_error, waits_for_store
from ddprof.slices.hangs.model import RankEvidence, Stuck, is_library

_LAST = 2**63  # when something happened of which nobody knows the time


@dataclass(frozen=True)
class FirstCause:
    """The first cause: its kind, the ranks that it begins with, and what is stuck because of it (None: unknown)."""

    kind: str
    ranks: tuple[int, ...]
    stuck: Stuck | None = None


def first_cause(stuck: Sequence[Stuck], ranks: Sequence[RankEvidence]) -> FirstCause | None:
    """The first cause; None where nothing is stuck and no rank failed."""
    of = {e.rank: e for e in ranks}
    candidates = [candidate for s in stuck if (candidate := _cause_of(s, stuck, of)) is not None]
    candidates.sort(key=lambda candidate: (_WEIGHT[candidate[1].kind], candidate[0]))
    failed = _failures(ranks)
    if candidates and candidates[0][1].kind in (model.KILLED, model.ERROR, model.MISMATCH, model.SKIPPED):
        return candidates[0][1]
    if failed is not None:
        return failed
    if candidates:
        return candidates[0][1]
    store = _store(ranks)
    if store is not None:
        return store
    messages = [s for s in stuck if s.is_message]
    awaiting = {rank for s in messages for rank in s.entered}
    lost = [s for s in messages if not awaiting.intersection(s.missing)]
    if lost:  # whoever was to send it has gone on, into a collective that waits for the receiver
        message = _first(lost)
        return FirstCause(model.MESSAGE, message.missing, message)
    return FirstCause(model.CROSSED, _in_circle(stuck), _first(stuck)) if stuck else None


# Weight, then time: what proves itself comes before what might be a consequence of it.
_WEIGHT = {
    model.KILLED: 0,
    model.ERROR: 0,
    model.MISMATCH: 0,
    model.SKIPPED: 0,
    model.ENDED: 1,
    model.STORE: 1,
    model.NOT_ENTERED: 1,
    model.MESSAGE: 1,
    model.CROSSED: 2,
    model.INSIDE: 3,
}


def _cause_of(
    stuck: Stuck, everything: Sequence[Stuck], of: Mapping[int, RankEvidence]
) -> tuple[int, FirstCause] | None:
    """(when, cause) of a stuck collective or message; None where it waits for ranks that are stuck themselves."""
    since = stuck.since_ns or _LAST
    if stuck.passed:
        return since, FirstCause(model.SKIPPED, tuple(p.rank for p in stuck.passed), stuck)
    if stuck.differs:
        least = min((v.ranks for v in stuck.variants), key=len)
        alone = len(stuck.variants) > 1 and all(len(v.ranks) > len(least) for v in stuck.variants if v.ranks != least)
        return since, FirstCause(model.MISMATCH, least if alone else stuck.entered, stuck)
    held = {rank for other in everything if other is not stuck for rank in other.entered}
    deaf = tuple(rank for rank in stuck.unseen if rank in of and _is_elsewhere(of[rank]))
    free = tuple(rank for rank in stuck.missing if rank not in held or rank not in of) + deaf
    for kind in (model.KILLED, model.ERROR, model.ENDED, model.STORE):
        ranks = tuple(rank for rank in stuck.missing if rank in of and _kind(of[rank]) == kind)
        if ranks:
            return since, FirstCause(kind, ranks, stuck)
    if free:
        return since, FirstCause(model.MESSAGE if stuck.is_message else model.NOT_ENTERED, free, stuck)
    if not stuck.missing:
        dead = tuple(rank for rank in stuck.entered if of[rank].ending.how == "killed")
        if dead:
            return since, FirstCause(model.KILLED, dead, stuck)
        return since, FirstCause(model.INSIDE, stuck.unseen, stuck)
    return None


def _is_elsewhere(evidence: RankEvidence) -> bool:
    """True where a rank without recorded calls is in no collective: no signal ended it, or its line is the user's."""
    return evidence.ending.how == "ended" or (bool(evidence.frames) and not is_library(evidence.frames[0]))


def _kind(evidence: RankEvidence) -> str:
    if evidence.ending.how == "killed":
        return model.KILLED
    if is_own_error(evidence):
        return model.ERROR
    if waits_for_store(evidence):
        return model.STORE
    return model.ENDED if evidence.ending.how == "finished" else model.NOT_ENTERED


def _failures(ranks: Sequence[RankEvidence]) -> FirstCause | None:
    """Ranks that failed on their own: the first exception that no peer explains, else the killed ranks."""
    failed = sorted((e.ending.at_ns or _LAST, e.rank) for e in ranks if is_own_error(e))
    if failed:
        errors = {e.rank: e.ending.error for e in ranks}
        same = [rank for _, rank in failed if errors[rank] == errors[failed[0][1]]]
        return FirstCause(model.ERROR, tuple(sorted(same)))
    killed = tuple(e.rank for e in ranks if e.ending.how == "killed")
    return FirstCause(model.KILLED, killed) if killed else None


def _store(ranks: Sequence[RankEvidence]) -> FirstCause | None:
    """Ranks that wait for the store, whose keys the other ranks are to set."""
    waiting = {e.rank for e in ranks if waits_for_store(e)}
    others = tuple(e.rank for e in ranks if e.rank not in waiting)
    return FirstCause(model.STORE, others or tuple(sorted(waiting))) if waiting else None


def _first(stuck: Sequence[Stuck]) -> Stuck:
    return min(stuck, key=lambda s: s.since_ns or _LAST)


def _in_circle(stuck: Sequence[Stuck]) -> tuple[int, ...]:
    """The ranks that wait for one another, without those that only wait for them."""
    waits = {(rank, other) for s in stuck for rank in s.entered for other in s.missing}
    while waits != (closed := {(a, b) for a, b in waits if a in {b for _, b in waits} and b in {a for a, _ in waits}}):
        waits = closed
    return tuple(sorted({rank for rank, _ in waits})) or tuple(sorted({rank for s in stuck for rank in s.entered}))
