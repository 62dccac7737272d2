"""Avoidable communication of a job by kind; a call has at most one kind."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
from msgspec import Struct

from ddprof import intervals
from ddprof.analyzers.facts.model import GradientAct, Phase, RankFacts
from ddprof.analyzers.facts.names import OP_CODE, matches
from ddprof.analyzers.facts.work import between_operators, host_work, issued_ns, passes_of
from ddprof.analyzers.job.ledger import cause_intervals
from ddprof.analyzers.job.model import JobFacts
from ddprof.analyzers.job.redundant.between import (
    WRAPPERS,
    before_backward,
    call_of,
    called_by_host,
    gathered_values,
    one_by_one,
    sent_parameters,
)
from ddprof.analyzers.job.traffic.kinds import (
    ACCUMULATION,
    BUFFERS,
    GRADIENT_ROLES,
    METRICS,
    NORMS,
    OF_LOSS,
    PARAMETERS,
    UNUSED,
    Needless,
)
from ddprof.analyzers.job.traffic.statistics import roles_by_comm
from ddprof.analyzers.job.waiting.waits import ready_by_comm
from ddprof.intervals import Intervals
from ddprof.sidecar import Sidecar
from ddprof.tables import NULL, Array

MOST_RANKS = 0.5  # all ranks call alike: what fewer show is something else, or chance
_FORWARD = re.compile(r"^DistributedDataParallel\.forward$")  # torch's own range
MIN_PASSES = 0.5  # of the forward passes: what happens more rarely is no setting of the model
_BYTES = 4  # of the map, per parameter
_REDUCTIONS = (OP_CODE["all_reduce"], OP_CODE["reduce_scatter"])
_ROLES = (*GRADIENT_ROLES, "fsdp_shard")
# A pass reduces what the last one reduces, but for a metric of a few bytes or a bucket that was rebuilt meanwhile.
ALIKE_SHARE = 0.9
MIN_UPDATES = 0.5  # of the optimizer steps in the recording: what happens more rarely is no habit of the loop


def find_needless(job: JobFacts) -> Mapping[str, Needless]:
    """Avoidable communication by kind, where most ranks have it."""
    if job.pipeline is not None:
        return {}  # a schedule reduces after its last microbatch, and calls passes in an order of its own
    separable = job.instances["members"] > 1
    roles = [roles_by_comm(job, position, separable) for position in range(len(job.ranks))]
    settings = next((facts.sidecar for facts in job.ranks if facts.sidecar.is_captured), Sidecar())
    models = max(1, sum(model.kind in WRAPPERS for model in settings.models))
    kinds = (
        _reductions(job, roles, models),
        _of_comms(BUFFERS, job, [sent_buffers(f, r) for f, r in zip(job.ranks, roles, strict=True)]),
        _unused(job),
        _of_calls(METRICS, job, gathered_values),
        _of_calls(OF_LOSS, job, before_backward),
        _of_calls(PARAMETERS, job, sent_parameters),
        _of_calls(NORMS, job, one_by_one),
    )
    few = MOST_RANKS * len(job.ranks)
    return {kind.kind: kind for kind in kinds if sum(rows.any() for rows in kind.comms) > few}


def _reductions(job: JobFacts, roles: list[Array], models: int) -> Needless:
    repeated = [repeated_reductions(f, r, models) for f, r in zip(job.ranks, roles, strict=True)]
    counts = [each.passes for each in repeated if each.passes]
    passes = round(float(np.median(counts))) if counts else 0
    made = _of_comms(ACCUMULATION, job, [each.comms for each in repeated], passes)
    return replace(made, is_proven=all(each.is_kept for each in repeated if each.passes))


def _unused(job: JobFacts) -> Needless:
    maps = [maps_without_need(facts) for facts in job.ranks]
    made = _of_comms(UNUSED, job, [comms for comms, _ in maps], max(count for _, count in maps))
    searching = (f.unused_searches.bounds for f in job.ranks)
    return replace(made, host=tuple(map(intervals.merge, made.host, searching)))


def _of_comms(kind: str, job: JobFacts, comms: list[Array], number: int = 0) -> Needless:
    host = tuple(called_by_host(facts, rows) for facts, rows in zip(job.ranks, comms, strict=True))
    return Needless(kind, tuple(comms), host, number)


def _of_calls(kind: str, job: JobFacts, select: Callable[[RankFacts], Array]) -> Needless:
    comms: list[Array] = []
    host: list[Intervals] = []
    for facts in job.ranks:
        calls = select(facts)
        row = call_of(facts)
        comms.append((row >= 0) & np.append(calls, False)[row])
        host.append(intervals.union(*facts.script_calls.bounds_of(calls)))
    return Needless(kind, tuple(comms), tuple(host))


def sent_buffers(facts: RankFacts, roles: Array) -> Array:
    """Mask of a rank's communications that send buffers of its model before a forward pass; shape (comms,).

    `roles`: of the group of each communication, shape (comms,). Broadcasts that the script calls are its own.
    """
    none = np.zeros(len(facts.comms), bool)
    if facts.sidecar.ddp.broadcast_buffers is False or not len(facts.comms):
        return none
    wrapped = facts.phases.take(matches(_FORWARD, facts.strings)[facts.phases["name"]])
    passes, at_ns = intervals.union(*wrapped.bounds), issued_ns(facts.comms)
    caller = intervals.row_at(passes, at_ns)
    sends = (facts.comms["op"] == OP_CODE["broadcast"]) & np.isin(roles, GRADIENT_ROLES) & (caller >= 0)
    sends &= ~intervals.contains(intervals.union(*facts.script_calls.bounds), at_ns)
    sending = len(np.unique(caller[sends]))
    return sends if sending and sending >= MIN_PASSES * len(passes[0]) else none


def maps_without_need(facts: RankFacts) -> tuple[Array, int]:
    """Mask of a rank's communications that reduce the map of used parameters, and the number of parameters, where every
    recorded pass uses all of them; else an empty mask and 0.

    The first element is bool of shape (comms,). With `find_unused_parameters=True` DistributedDataParallel walks the
    graph after each forward pass and reduces a map of one 32-bit integer per parameter after each backward pass
    (torch/csrc/distributed/c10d/reducer.cpp: search_unused_parameters, all_reduce_local_used_map). The map's bytes say
    how many parameters there are, the gradients of the pass how many were used.
    """
    comms, searches = facts.comms, facts.unused_searches
    none = np.zeros(len(comms), bool)
    if not len(searches) or not len(comms):
        return none, 0
    at_ns = issued_ns(comms)
    search = np.searchsorted(searches["start_ns"], at_ns, side="right") - 1
    gradients = np.append(searches["gradients"], 0)[search]  # row -1 is none
    whole = (comms["op"] == OP_CODE["all_reduce"]) & (gradients > 0)
    rows = np.flatnonzero(whole & (comms["in_bytes"] == _BYTES * gradients))
    rows = rows[np.argsort(at_ns[rows], kind="stable")]
    # A bucket may have as many bytes: the map is reduced after all buckets of its pass.
    last = dict(zip(search[rows].tolist(), rows.tolist(), strict=True))
    searching = np.unique(search[whole])  # the recording may end between a search and its backward pass
    if not len(searching) or set(last) != set(searching.tolist()):
        return none, 0
    none[list(last.values())] = True
    return none, int(np.median(gradients[none]))


class Repeated(Struct, frozen=True):
    """Communications of a rank (mask, shape (comms,)) that reduce gradients which a later pass of the same optimizer
    step reduces again. `passes`: backward passes per optimizer step, 0 where none is avoidable. `is_kept`: gradients
    were seen to accumulate from pass to pass, touched by nothing else.
    """

    comms: Array
    passes: int = 0
    is_kept: bool = False


def repeated_reductions(facts: RankFacts, roles: Array, models: int) -> Repeated:
    """Communication of gradients that the rank reduces again. `roles`: of each communication's group, shape (comms,).
    `models`: data-parallel models of the job, each of which has a last pass.

    The sum over micro-batches can be taken before the sum over ranks: `no_sync()` of DistributedDataParallel and
    `set_requires_gradient_sync` of FSDP do (their documentation). That is the same only while gradients are kept: where
    they are zeroed between two passes (closures, sharpness-aware minimisation, a second loss), each pass needs its own
    sum. Autograd shows it: it adds to a gradient that is kept, and stores one that is not.
    """
    none = Repeated(np.zeros(len(facts.comms), bool))
    backward, updates = passes_of(facts, Phase.BACKWARD), passes_of(facts, Phase.OPTIMIZER)
    if len(backward[0]) < 2 or not len(updates[0]):
        return none
    caller = np.where(_reduces(facts, roles), intervals.row_at(backward, issued_ns(facts.comms)), -1)
    volume = _volume(facts, caller, len(backward[0]))
    kept = _kept(facts, backward, not (roles[caller >= 0] == "fsdp_shard").any())
    following = np.searchsorted(updates[0], backward[1])
    volume[intervals.contains(updates, backward[0])] = 0  # a closure: the optimizer needs the sum of each evaluation
    needless = np.zeros(len(backward[0]), bool)
    counts, affected, is_kept = [], 0, True
    updated = np.unique(following[following < len(updates[0])])
    for at, update in enumerate(updated.tolist()):
        before = np.flatnonzero((following == update) & (volume > 0))
        if len(before):  # a pass before the last one whose gradients did not meet kept ones is of another sum
            before = before[before >= 1 + max(np.flatnonzero(kept[1 : before[-1] + 1] == _FRESH), default=-1)]
        steps = (int(updated[at + 1]) if at + 1 < len(updated) else update + 1) - update
        last = max(models, steps)  # optimizers that step one after the other may each have had a pass
        repeated = _alike(volume, before, last)
        needless[repeated] = True
        affected += len(repeated) > 0
        counts.append(len(repeated) + last)
        if len(repeated):
            is_kept &= bool((kept[repeated[0] + 1 : before[-1] + 1] == _ADDED).all())
    if affected < MIN_UPDATES * len(updated) or not affected:
        return none
    comms = (caller >= 0) & needless[np.maximum(caller, 0)]
    return Repeated(comms, round(float(np.median(counts))), is_kept)


_UNKNOWN, _FRESH, _ADDED = range(3)


def _kept(facts: RankFacts, backward: Intervals, is_whole: bool) -> Array:
    """State of earlier passes' gradients when each pass brought its own, shape (passes,): zeroed (_FRESH), or
    accumulated and untouched in between (_ADDED).

    `is_whole`: parameters hold their gradients, unlike FSDP's, which are gathered anew for each pass.
    """
    start, end = backward

    def seen(act: GradientAct, where: Intervals) -> Array:
        of_act = facts.gradients.take(facts.gradients["act"] == act)
        return np.asarray(intervals.overlap(intervals.union(*of_act.bounds), *where) > 0)

    before = np.append(start[:1], end[:-1]), start  # from the pass before on
    added, stored = (seen(act, (start, end)) for act in (GradientAct.ADDED, GradientAct.STORED))
    states = np.full(len(start), _UNKNOWN)
    if is_whole:
        states[added & ~stored & ~seen(GradientAct.TOUCHED, before)] = _ADDED
        states[stored & ~added] = _FRESH
    states[seen(GradientAct.ZEROED, before)] = _FRESH
    return states


def _reduces(facts: RankFacts, roles: Array) -> Array:
    """Mask of communications that may reduce gradients.

    Layers that are split over ranks reduce activations in both passes, and need them for every micro-batch: operations
    of a group that the forward pass calls as well are not of gradients.
    """
    comms = facts.comms
    reduces = np.isin(comms["op"], _REDUCTIONS) & np.isin(roles, _ROLES)
    forward = intervals.contains(passes_of(facts, Phase.FORWARD), issued_ns(comms))
    for op in _REDUCTIONS:
        both = np.unique(comms["group"][forward & (comms["op"] == op)])
        reduces &= ~((comms["op"] == op) & np.isin(comms["group"], both))
    return reduces


def _volume(facts: RankFacts, caller: Array, passes: int) -> Array:
    """Volume that each pass reduces: bytes, or calls where sizes are not recorded; shape (passes,)."""
    size = facts.comms["in_bytes"]
    has_sizes = bool((size[caller >= 0] != NULL).all())
    weights = np.where(size == NULL, 0, size) if has_sizes else np.ones(len(size))
    return np.bincount(caller[caller >= 0], weights=weights[caller >= 0], minlength=passes)


def _alike(volume: Array, passes: Array, kept: int) -> Array:
    """Mask of passes before one update whose volume equals that of one of the last `kept` passes."""
    if len(passes) <= kept:
        return passes[:0]
    earlier, last = volume[passes[:-kept]], volume[passes[-kept:]]
    low, high = np.minimum(earlier[:, None], last), np.maximum(earlier[:, None], last)
    alike: Array = passes[:-kept][(low >= ALIKE_SHARE * high).any(axis=1)]
    return alike


# Cost of avoidable communication by the ledger.


def needless_us(job: JobFacts, kind: Needless | None, waits: bool) -> Array:
    """Time of each rank in some communication alone, with nothing computing, us per step, shape (ranks,).

    `waits`: include waits for late ranks. On a CPU rank, whose host computes, it includes the host's calls.
    """
    if kind is None:
        return np.zeros(len(job.ranks))
    return np.array([_of_rank(job, position, kind, waits) for position in range(len(job.ranks))])


def _of_rank(job: JobFacts, position: int, kind: Needless, waits: bool) -> float:
    facts, needless = job.ranks[position], kind.comms[position]
    ready = ready_by_comm(job.members, position, facts)
    comms = facts.comms
    start = comms["start_ns"] if waits else ready
    computing = intervals.merge(host_work(facts), between_operators(facts))  # of a device rank's host nothing
    # While another communication is under way the rank is held without these, too.
    kept = intervals.union(comms["start_ns"][~needless], comms["end_ns"][~needless])
    gone = intervals.subtract(intervals.union(start[needless], comms["end_ns"][needless]), kept)
    exposed = cause_intervals(facts, ready)
    held = intervals.merge(exposed["comm_transfer"], exposed["comm_wait"]) if waits else exposed["comm_transfer"]
    spans = intervals.merge(intervals.intersect(gone, held), intervals.intersect(kind.host[position], computing))
    return facts.per_step_us(spans)
