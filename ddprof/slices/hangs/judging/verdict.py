"""Verdict on a hang or failure from the evidence on each rank."""

from __future__ import annotations

from collections.abc import Sequence

from ddprof.slices.hangs import model
from ddprof.slices.hangs.judging.causes import FirstCause, first_cause
from ddprof.slices.hangs.judging.collectives import stuck_in, stuck_messages
from ddprof.slices.hangs.judging.exits import (
    INTERRUPTIONS,
    from_stacks,
    in_backward,
    stuck_workers,
    waited_long,
    with_failed_calls,
    with_late_kills,
)
from ddprof.slices.hangs.judging.groups import job_groups
from ddprof.slices.hangs.judging.words import line_words, sentence
from ddprof.slices.hangs.model import Hang, RankEvidence, RankRow, StackFrame, Stuck, WorkerRow, user_frame
from ddprof.units import format_ranks

_STATES = {
    "finished": "had ended normally",
    "killed": "was killed",
    "stopped": "was stopped",
    "ended": "was killed when the job had failed",
    "running": "was running",
    "unknown": "nothing is known of its end",
}


def judge(ranks: Sequence[RankEvidence], hang_seen: bool = False) -> Hang:
    """Cause of a hang or failure. `hang_seen`: ranks hung while the job ran, so that their open calls count."""
    evidence = [in_backward(e) for e in from_stacks(with_failed_calls(with_late_kills(ranks)))]
    groups = job_groups(evidence)
    stuck = [halt for job in groups if (halt := stuck_in(job)) is not None] + stuck_messages(evidence)
    if not hang_seen:
        stuck = [halt for halt in stuck if _is_long(halt, evidence)]
    cause = first_cause(stuck, evidence)
    names = {job.group.name: job.group for job in groups}
    names = {**{name: group for e in evidence for name, group in e.groups.items()}, **names}
    rows = tuple(_row(e) for e in evidence)
    if cause is None:
        return Hang(model.NONE, _nothing(evidence), rows=rows)
    of = {e.rank: e for e in evidence}
    first = [cause.stuck] if cause.stuck is not None else []
    first += sorted((s for s in stuck if s is not cause.stuck), key=lambda s: s.since_ns or 0)
    blamed = of.get(cause.ranks[0]) if cause.ranks else None
    return Hang(
        kind=cause.kind,
        sentence=sentence(cause, of, names),
        ranks=cause.ranks,
        waiting=tuple(sorted({rank for s in stuck for rank in s.entered} - set(cause.ranks))),
        stuck=tuple(first),
        frame=_frame(cause, blamed),
        rows=rows,
        timeout_s=_timeout_s(cause, evidence),
    )


def _timeout_s(cause: FirstCause, ranks: Sequence[RankEvidence]) -> float | None:
    """The shortest time-out of the calls that ranks are blocked in because of the cause."""
    stuck = cause.stuck
    if stuck is None:
        return None
    calls = (c for e in ranks if e.rank in stuck.entered for c in e.calls if c.group == stuck.group and not c.done)
    return min((call.timeout_ns / 1e9 for call in calls if call.timeout_ns), default=None)


def _frame(cause: FirstCause, blamed: RankEvidence | None) -> StackFrame | None:
    """The line of the cause: that of its call, or of what the rank does instead."""
    stuck = cause.stuck
    if stuck is not None and stuck.passed:
        return user_frame(stuck.passed[0].instead.frames)
    if cause.kind == model.MISMATCH and stuck is not None:
        calls = [v.call for v in stuck.variants if set(v.ranks) & set(cause.ranks)]
        return user_frame(calls[0].frames) if calls else stuck.frame
    return user_frame(blamed.frames) if blamed is not None else None


def _is_long(stuck: Stuck, ranks: Sequence[RankEvidence]) -> bool:
    """True where ranks stopped from outside had waited longer than usual; True for any others."""
    inside = [e for e in ranks if e.rank in stuck.entered]
    failed = any(e.ending.how in ("error", "killed", "finished") for e in ranks)
    if failed or stuck.differs or any(e.seen_ns is None for e in inside):
        return True
    return bool(stuck.since_ns) and any(map(waited_long, inside))


def _row(evidence: RankEvidence) -> RankRow:
    call = next((call for call in evidence.calls if not call.done), None)
    ending = evidence.ending
    state = _STATES.get(ending.how, "")
    if ending.how == "error":
        state = f"raised {ending.error}"
    elif ending.how == "killed" and ending.error:
        state = f"was killed ({ending.error})"
    workers = tuple(WorkerRow(w.worker, line) for w in stuck_workers(evidence) if (line := user_frame(w.frames)))
    return RankRow(evidence.rank, evidence.host, state, call, user_frame(evidence.frames), evidence.steps, workers)


def _nothing(ranks: Sequence[RankEvidence]) -> str:
    if not ranks:
        return "No rank left a dump, a stack or a sidecar: nothing is known."
    if all(e.ending.how == "finished" for e in ranks):
        return "No collective is stuck: the job ended normally."
    interrupted = [e for e in ranks if e.ending.error in INTERRUPTIONS]
    if interrupted:
        first = min(interrupted, key=lambda e: e.ending.at_ns or 0)
        line = line_words(user_frame(first.ending.frames))
        who = "every rank" if len(interrupted) == len(ranks) else format_ranks(tuple(e.rank for e in interrupted))
        at = f", rank {first.rank} first at {line}" if line else ""
        return f"No collective is stuck: somebody interrupted {who} ({first.ending.error}){at}."
    if any(e.has_calls for e in ranks):
        return "No collective is stuck: those recorded have ended, or all ranks were in the middle of a step."
    return "No rank left a record of its collectives, and no stack shows one: the stuck call is unknown."
