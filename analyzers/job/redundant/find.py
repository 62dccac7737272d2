"""Avoidable communication of a job by kind; a call has at most one kind."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.names import OP_CODE, matches
from ddprof.analyzers.facts.work import issued_ns
from ddprof.analyzers.job.model import JobFacts
from ddprof.analyzers.job.redundant.accumulation import repeated_reductions
from ddprof.analyzers.job.redundant.between import WRAPPERS, call_of, gathered_values, one_by_one, sent_parameters
from ddprof.analyzers.job.redundant.passes import HostPasses, called_by_host
from ddprof.analyzers.job.traffic.gradients import GRADIENT_ROLES
from ddprof.analyzers.job.traffic.redundant import ACCUMULATION, BUFFERS, METRICS, NORMS, PARAMETERS, UNUSED, Needless
from ddprof.analyzers.job.traffic.statistics import roles_by_comm
from ddprof.intervals import Intervals
from ddprof.sidecar import Sidecar
from ddprof.tables import Array

MOST_RANKS = 0.5  # all ranks call alike: what fewer show is something else, or chance
_FORWARD = re.compile(r"^DistributedDataParallel\.forward$")  # torch's own range
MIN_PASSES = 0.5  # of the forward passes: what happens more rarely is no setting of the model
_BYTES = 4  # of the map, per parameter


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
    passes = HostPasses(intervals.union(*wrapped.bounds))
    caller = passes.calling(facts)
    at_ns = issued_ns(facts.comms)
    sends = (facts.comms["op"] == OP_CODE["broadcast"]) & np.isin(roles, GRADIENT_ROLES) & (caller >= 0)
    sends &= ~intervals.contains(intervals.union(*facts.script_calls.bounds), at_ns)
    sending = len(np.unique(caller[sends]))
    return sends if sending and sending >= MIN_PASSES * len(passes) else none


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
