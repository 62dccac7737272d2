"""All communication of a job that could go, kind by kind; a call is of one kind at most."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.job.model import JobFacts
from ddprof.analyzers.job.needless.accumulation import repeated_reductions
from ddprof.analyzers.job.needless.between import call_of, gathered_values, one_by_one
from ddprof.analyzers.job.needless.buffers import sent_buffers
from ddprof.analyzers.job.needless.passes import called_by_host
from ddprof.analyzers.job.needless.unused import maps_without_need, search_time
from ddprof.analyzers.job.traffic.needless import ACCUMULATION, BUFFERS, METRICS, NORMS, UNUSED, Needless
from ddprof.analyzers.job.traffic.roles import roles_by_comm
from ddprof.intervals import Intervals
from ddprof.sidecar import Sidecar
from ddprof.tables import Array

MOST_RANKS = 0.5  # all ranks call alike: what fewer show is something else, or chance


def find_needless(job: JobFacts) -> Mapping[str, Needless]:
    """What could go, by kind, where most ranks have it."""
    if job.pipeline is not None:
        return {}  # a schedule reduces after its last microbatch, and calls passes in an order of its own
    told = job.instances["members"] > 1
    roles = [roles_by_comm(job, position, told) for position in range(len(job.ranks))]
    settings = next((facts.sidecar for facts in job.ranks if facts.sidecar.is_captured), Sidecar())
    models = max(1, sum(model.kind in ("ddp", "fsdp1", "fsdp2") for model in settings.models))
    found = (
        _reductions(job, roles, models),
        _of_comms(BUFFERS, job, [sent_buffers(f, r) for f, r in zip(job.ranks, roles, strict=True)]),
        _unused(job),
        _of_calls(METRICS, job, gathered_values),
        _of_calls(NORMS, job, one_by_one),
    )
    few = MOST_RANKS * len(job.ranks)
    return {kind.kind: kind for kind in found if sum(mine.any() for mine in kind.comms) > few}


def _reductions(job: JobFacts, roles: list[Array], models: int) -> Needless:
    found = [repeated_reductions(f, r, models) for f, r in zip(job.ranks, roles, strict=True)]
    told = [each.passes for each in found if each.passes]
    passes = round(float(np.median(told))) if told else 0
    made = _of_comms(ACCUMULATION, job, [each.comms for each in found], passes)
    return replace(made, is_proven=all(each.is_kept for each in found if each.passes))


def _unused(job: JobFacts) -> Needless:
    found = [maps_without_need(facts) for facts in job.ranks]
    made = _of_comms(UNUSED, job, [comms for comms, _ in found], max(count for _, count in found))
    host = tuple(intervals.merge(called, search_time(f)) for called, f in zip(made.host, job.ranks, strict=True))
    return Needless(UNUSED, made.comms, host, made.number)


def _of_comms(kind: str, job: JobFacts, comms: list[Array], number: int = 0) -> Needless:
    host = tuple(called_by_host(facts, mine) for facts, mine in zip(job.ranks, comms, strict=True))
    return Needless(kind, tuple(comms), host, number)


def _of_calls(kind: str, job: JobFacts, select: Callable[[RankFacts], Array]) -> Needless:
    comms: list[Array] = []
    host: list[Intervals] = []
    for facts in job.ranks:
        calls = select(facts)
        row = call_of(facts)
        comms.append((row >= 0) & np.append(calls, False)[row])
        host.append(intervals.union(*facts.script_calls.take(calls).bounds))
    return Needless(kind, tuple(comms), tuple(host))
