"""All ranks' facts to JobFacts: the reduce step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.gaps import unexplained
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.stepping.start_up import WORTH_SAYING
from ddprof.analyzers.facts.stepping.steps import RESOLUTION_NS
from ddprof.analyzers.facts.work import hides_waits
from ddprof.analyzers.job.clock import ClockDifference, SharedOperations, align
from ddprof.analyzers.job.groups import GroupKey, comm_group_ids, group_sizes, groups_table, world_size_of
from ddprof.analyzers.job.ledger import build_ledger, cause_intervals
from ddprof.analyzers.job.matching import IN_STEP, InOrder, Matched, match
from ddprof.analyzers.job.model import Clock, JobFacts, LeftOut, common_numbers, rows_of_steps
from ddprof.analyzers.job.oversubscription import oversubscription_note, shared_device_note
from ddprof.analyzers.job.pipelines.bubble import bubble_allowance
from ddprof.analyzers.job.pipelines.stages import find_pipeline
from ddprof.analyzers.job.rendezvous.inferred import find_meetings
from ddprof.analyzers.job.rendezvous.record import inferred_note, with_meetings
from ddprof.analyzers.job.scope import left_out_note, none_is_steady
from ddprof.analyzers.job.steps.recorded_by_all import Comparable, comparable, left_out_ranks_note
from ddprof.analyzers.job.steps.steady import own_steady_steps, steady_steps
from ddprof.analyzers.job.waiting.blame import charge
from ddprof.analyzers.job.waiting.lost import lost_note, with_lost_collectives
from ddprof.analyzers.job.waiting.waits import ready_by_comm, split_waits
from ddprof.analyzers.job.whole_run.cpu_waits import busy_machine_note
from ddprof.analyzers.job.whole_run.fetch_turns import with_turns
from ddprof.analyzers.job.whole_run.unprofiled_steps import growth_note, longer_outside_note
from ddprof.model import HealthNote
from ddprof.tables import Array
from ddprof.units import format_ranks, format_share

# Test of matched operations: nobody leaves a collective before its last member has arrived.
#
# That holds for every operation that two ranks share, whatever their clocks' offset and drift. Where events were
# sampled or filtered, or a file is of another run, the k-th collectives of two files differ and it fails; where a clock
# was set, it fails from then on. Then nothing may be concluded: no wait, no clock, no late rank.

DRIFT = 200e-6  # of two quartz clocks against one another: 100 ppm each is their usual limit
IMPOSSIBLE_SHARE = 0.1  # of shared operations; one in ten may be torn by a lost event
PARTNERS = 8  # ranks that each rank is compared with; all, where there are fewer
_WHY = "events are missing, a clock was set, or a file is from another run"
NOT_THE_SAME = f"the collectives of these files do not match: {_WHY}"


def disagreeing(ranks: Sequence[RankFacts], matched: Matched) -> list[int]:
    """Positions of ranks whose operations cannot be the ones they are matched with on most ranks."""
    shared = SharedOperations(ranks, matched)
    partners = range(len(ranks))[:: -(-len(ranks) // PARTNERS)]
    positions = []
    for position in range(len(ranks)):
        compared = [c for p in partners if p != position and (c := shared.compare(p, position)) is not None]
        if sum(map(_is_impossible, compared)) * 2 > len(compared):
            positions.append(position)
    return positions


def _is_impossible(compared: ClockDifference) -> bool:
    """True where no offset and drift of the clocks lets every member arrive before any left, in many operations, or in
    all since some time or until then, as where a clock was set.

    Uses operations whose length both ranks know, as a flight recorder may know no end.
    """
    has_length = (compared.most_ns > compared.difference_ns) & (compared.difference_ns > compared.least_ns)
    if not has_length.any():
        return False
    middle = (compared.when_ns.max() + compared.when_ns.min()) / 2
    slack = (RESOLUTION_NS + DRIFT * np.abs(compared.when_ns - middle))[has_length]
    at_once = _most_at_once(compared.least_ns[has_length] - slack, compared.most_ns[has_length] + slack)
    changes = np.count_nonzero(np.diff(at_once[np.argsort(compared.when_ns[has_length], kind="stable")]))
    return bool(changes == 1 or 1 - at_once.mean() > IMPOSSIBLE_SHARE)


def _most_at_once(low: Array, high: Array) -> Array:
    """Mask of the most intervals [low, high] that share one value."""
    if low.max() <= high.min():  # all do, as in most jobs
        return np.ones(len(low), bool)
    bounds = np.concatenate((low, high))
    opens = np.repeat([1, -1], (len(low), len(high)))
    order = np.lexsort((-opens, bounds))  # where one ends as another begins, the value is in both
    value = bounds[order][np.argmax(np.cumsum(opens[order]))]
    return np.asarray((low <= value) & (value <= high))


def unmatched(matched: Matched) -> Matched:
    """Every row as an operation with one known member."""
    by_row = {name: getattr(matched, name)[matched.instance] for name in ("op", "group", "is_message", "size_bytes")}
    return replace(matched, instance=np.arange(len(matched.instance)), **by_row)


def odd_ranks_note(ranks: Sequence[RankFacts]) -> HealthNote:
    """Note on ranks that contradict the others and are left out."""
    named = format_ranks(tuple(r for f in ranks if (r := f.identity.rank) is not None))
    return HealthNote(f"the collectives of {named} are not those of the other ranks", f"left out: {NOT_THE_SAME}")


def job_facts(facts: Sequence[RankFacts]) -> JobFacts:
    """The job, from the facts of its ranks (in any order; ranks must be distinct)."""
    ordered = with_turns(sorted(facts, key=lambda f: (f.identity.rank is None, f.identity.rank or 0)))
    compared, own_once = _with_own_steps(comparable(ordered))
    met = _met(compared)
    rank_ids = tuple(f.identity.rank if f.identity.rank is not None else p for p, f in enumerate(met.ranks))
    named = [f.identity.rank for f in ordered if f.identity.rank is not None]
    world_size = world_size_of(ordered)
    # A lone file that states no world size is no evidence of other ranks, whatever number its name holds.
    alone = len(ordered) == 1 and not ordered[0].identity.world_size
    read = set(rank_ids)
    missing = () if alone else tuple(rank for rank in range(world_size) if rank not in read)
    met, clock, notes = _with_inferred(met, world_size)
    ranks, matched, keys = met.ranks, met.matched, met.keys
    instances, members = split_waits(ranks, matched, clock, _group_sizes(met))
    if compared.why_not:
        left_out = own_once
    elif met.why_not:
        ranks, left_out = own_steady_steps(ranks)
    else:
        ranks, left_out = steady_steps(ranks, clock, [compared.recorded(facts) for facts in ranks])
    pipeline = find_pipeline(ranks, matched)
    causes = [cause_intervals(facts, ready_by_comm(members, p, facts)) for p, facts in enumerate(ranks)]
    ledger = build_ledger(ranks, members, causes, bubble_allowance(ranks, pipeline))
    per_step = _per_step(ranks)
    step_ns = round(float(np.mean(per_step))) if per_step else 0
    return JobFacts(
        ranks=ranks,
        rank_ids=rank_ids,
        world_size=world_size,
        missing_ranks=missing,
        clock=clock,
        groups=groups_table(keys, ranks, met.group_ids, world_size, pipeline is not None or bool(missing) or alone),
        instances=instances,
        members=members,
        ledger=ledger,
        blame=charge(ranks, instances, members, clock, causes),
        pipeline=pipeline,
        health=(
            *met.notes,
            *_of_left_out(ordered, ranks),
            *notes,
            *matched.notes,
            *left_out_note(ranks, left_out, step_ns, len(ranks[0].steps)),
            *_health(ranks, tuple(rank for rank in missing if rank not in set(named)), world_size),
            *_recorded_with_less(ranks),
            *_checked_collectives(ranks),
            *oversubscription_note(ranks),
            *shared_device_note(ranks, rank_ids),
            *busy_machine_note(ranks),
            *growth_note(ranks),
            *longer_outside_note(ranks, step_ns),
            *_watched(ranks),
        ),
        step_ns=step_ns,
        per_step_ns=tuple(per_step),
        left_out=left_out,
        not_compared=met.why_not,
    )


def _recorded_with_less(ranks: Sequence[RankFacts]) -> list[HealthNote]:
    """Notes on instruments that capture switched off in some windows because others made steps too long."""
    windows = next((facts.sidecar.windows for facts in ranks if facts.sidecar.windows), ())
    less = Counter(" and ".join(window.left_out) for window in windows if window.left_out)
    if not less:
        return []
    of_each = ", ".join(f"{count} without {left_out}" for left_out, count in less.items())
    issue = f"trace windows were recorded with less: of {len(windows)} windows {of_each}"
    return [HealthNote(issue, "steps in earlier ones took longer than --max-overhead allows", "info")]


def _watched(ranks: Sequence[RankFacts]) -> list[HealthNote]:
    """Notes on functions of debuggers, coverage and profilers that the interpreter calls in the training threads."""
    named: dict[str, list[int]] = {}
    for facts in ranks:
        for watcher in facts.sidecar.watchers:
            named.setdefault(watcher, []).append(facts.identity.rank or 0)
    effect = "Python runs slower than without it: a debugger, coverage or a profiler was left on"
    return [
        HealthNote(f"{format_ranks(tuple(of))}: {what} is called as Python runs", effect) for what, of in named.items()
    ]


def _silent_hosts(ranks: Sequence[RankFacts]) -> list[HealthNote]:
    """A note on devices that wait, in the steps that are judged, for hosts whose work is not recorded."""
    shares = {}
    for position, facts in enumerate(ranks):
        idle = intervals.union(*facts.gaps_of("host_launch").bounds)
        lo, hi = facts.steps.bounds
        unseen_ns = intervals.overlap(intervals.intersect(idle, facts.silences.bounds), lo, hi).sum()
        rank = position if facts.identity.rank is None else facts.identity.rank
        if not len(facts.script_spans) and unseen_ns > WORTH_SAYING * (hi - lo).sum():
            shares[rank] = float(unseen_ns / (hi - lo).sum())
    if not shares:
        return []
    waits = "the device waits" if len(shares) == 1 else "the devices wait up to"
    issue = f"{format_ranks(tuple(shares))}: {waits} {format_share(max(shares.values()))} of each step for a host"
    return [HealthNote(f"{issue} that recorded no event", "record Python stacks to see what it runs", "info")]


def _checked_collectives(ranks: Sequence[RankFacts]) -> list[HealthNote]:
    """A note on collectives that PyTorch checks across ranks before it runs them."""
    set_to = {facts.sidecar.communication_environment.get("TORCH_DISTRIBUTED_DEBUG", "").upper() for facts in ranks}
    if "DETAIL" not in set_to:
        return []
    costs = "a barrier and two gathers of all ranks before each collective count as its time"
    return [HealthNote("TORCH_DISTRIBUTED_DEBUG=DETAIL is set", f"{costs}: unset it unless you debug")]


def _with_own_steps(compared: Comparable) -> tuple[Comparable, tuple[LeftOut, ...]]:
    """Ranks that are not compared, each with its own steady steps, and the steps left out. A rank with nothing but work
    that was one-off on its peers is left out too, unless all are.
    """
    if not compared.why_not:
        return compared, ()
    ranks, once = own_steady_steps(compared.ranks)
    are_numbered = all(facts.step_source == "profiler_step" for facts in ranks)
    kept = [p for p, facts in enumerate(ranks) if not (are_numbered and none_is_steady([facts], once))]
    if not kept or len(kept) == len(ranks):
        return replace(compared, ranks=ranks), once
    note = left_out_ranks_note(ranks, kept)
    return replace(compared, ranks=tuple(ranks[p] for p in kept), notes=(*compared.notes, note)), once


@dataclass(frozen=True)
class _Met:
    """Comparable ranks and their matched operations. `why_not`: why they cannot be compared; "" where they can.
    `are_steps_apart`: by their messages, the ranks' steps begin apart."""

    ranks: tuple[RankFacts, ...]
    matched: Matched
    group_ids: list[Array]
    keys: list[GroupKey]
    notes: tuple[HealthNote, ...]
    why_not: str
    in_order: InOrder = IN_STEP


def _met(compared: Comparable) -> _Met:
    """Matched operations of the ranks, without ranks whose collectives cannot belong to the others'."""
    ranks, notes = compared.ranks, compared.notes
    group_ids, keys = comm_group_ids(ranks)
    matched = match(ranks, group_ids, keys)
    odd = disagreeing(ranks, matched)
    in_order = IN_STEP
    for other in (InOrder(are_steps_apart=True), InOrder(from_end=True)) if odd else ():
        again = match(ranks, group_ids, keys, other)
        left = disagreeing(ranks, again)
        if len(left) < len(odd):
            matched, odd, in_order = again, left, other
    if not odd:
        return _Met(ranks, matched, group_ids, keys, notes, compared.why_not, in_order)
    rest = tuple(f for p, f in enumerate(ranks) if p not in set(odd))
    if len(rest) > len(odd) and len(rest) > 1:
        note = odd_ranks_note([ranks[p] for p in odd])
        return _met(replace(compared, ranks=rest, notes=(*notes, note)))
    # What left a mark on the collectives left its mark on all else: an idle device may be one whose events are missing.
    blank = tuple(replace(f, gaps=unexplained(f.gaps)) for f in ranks)
    note = HealthNote(NOT_THE_SAME, "not matched: no waits, no clock offsets, no comparison of ranks", "error")
    return _Met(blank, unmatched(matched), group_ids, keys, (*notes, note), NOT_THE_SAME)


def _with_inferred(met: _Met, world_size: int) -> tuple[_Met, Clock, list[HealthNote]]:
    """Matched operations including inferred rendezvous, the clock, and notes on it."""
    clock, notes = align(met.ranks, met.matched)
    if met.why_not or len(met.ranks) < 2:
        return met, clock, notes
    whole = with_lost_collectives(met.ranks, met.matched, met.keys, clock, _group_sizes(met))
    met = _matched_again(met, whole, lost_note(met.ranks, whole)) if whole else met
    groups = dict.fromkeys((tuple(range(world_size)), *(members for members, _ in met.keys if len(members) > 1)))
    meetings = find_meetings(met.ranks, clock, tuple(groups), float(np.mean(_per_step(met.ranks) or [0])))
    if not meetings:
        return met, clock, notes
    inferred = _matched_again(met, with_meetings(met.ranks, meetings))
    clock, notes = align(inferred.ranks, inferred.matched)
    return inferred, clock, [*notes, inferred_note(meetings)]


def _matched_again(met: _Met, ranks: tuple[RankFacts, ...], *notes: HealthNote) -> _Met:
    """The ranks with more communication than before, matched, and notes on it."""
    group_ids, keys = comm_group_ids(ranks)
    matched = match(ranks, group_ids, keys, met.in_order)
    return replace(met, ranks=ranks, matched=matched, group_ids=group_ids, keys=keys, notes=(*met.notes, *notes))


def _group_sizes(met: _Met) -> Array:
    """Members that each matched operation should have, shape (instances,)."""
    size_of = group_sizes(met.keys, met.ranks)
    return np.where(met.matched.is_message, 2, size_of[met.matched.group] if len(size_of) else 0)


def _of_left_out(all_ranks: Sequence[RankFacts], kept: Sequence[RankFacts]) -> list[HealthNote]:
    """Notes of the readers on ranks that are not compared, mostly the reason."""
    files = {facts.path for facts in kept}
    left_out = [facts for facts in all_ranks if facts.path not in files]
    return [
        note if note.rank is not None else replace(note, rank=facts.identity.rank)
        for facts in left_out
        for note in facts.health
    ]


def _per_step(ranks: Sequence[RankFacts]) -> list[int]:
    """Wall time of each step of the job, mean over the ranks that hold it, ns."""
    numbers = common_numbers(ranks)
    rows = np.array([rows_of_steps(facts, numbers) for facts in ranks])
    walls = [(facts.steps["end_ns"] - facts.steps["start_ns"])[of] for facts, of in zip(ranks, rows, strict=True)]
    means = np.average(walls, axis=0, weights=rows >= 0)
    return [round(mean) for mean in means.tolist()]


def _health(ranks: Sequence[RankFacts], missing: tuple[int, ...], world_size: int) -> list[HealthNote]:
    notes = []
    if missing:
        shown = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
        issue = f"{len(missing)} of {world_size} ranks {'was' if len(missing) == 1 else 'were'} not traced: {shown}"
        effect = "waits for them are charged to no rank; if their node wrote to another folder, give both folders"
        notes.append(HealthNote(issue, effect))
    counts = {len(f.steps) for f in ranks}
    if len(counts) > 1:
        issue = f"ranks hold {min(counts)} to {max(counts)} steps"
        notes.append(HealthNote(issue, "means are over each rank's own steps", "info"))
    if len(ranks) > 1 and all(hides_waits(f) for f in ranks):
        issue = "no communication was recorded between the ranks"
        notes.append(HealthNote(issue, "waiting for other ranks counts as host time"))
    if any(f.step_source == "inferred" and len(f.steps) == 1 for f in ranks):
        notes.append(HealthNote("no step marks in the trace", "the whole window counts as one step"))
    return [*notes, *_silent_hosts(ranks)]
