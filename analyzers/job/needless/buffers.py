"""Buffers that DistributedDataParallel sends from rank 0 before each forward pass (`broadcast_buffers=True`)."""

from __future__ import annotations

import re

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.names import OP_CODE, matches
from ddprof.analyzers.facts.work import issued_ns
from ddprof.analyzers.job.needless.passes import HostPasses
from ddprof.analyzers.job.traffic.gradients import GRADIENT_ROLES
from ddprof.tables import Array

_FORWARD = re.compile(r"^DistributedDataParallel\.forward$")  # torch's own range
MIN_PASSES = 0.5  # of the forward passes: what happens more rarely is no setting of the model


def sent_buffers(facts: RankFacts, roles: Array) -> Array:
    """Which communications of a rank carry buffers of its model before a forward pass; bool, shape (comms,).

    `roles`: of the group of each communication, shape (comms,). Broadcasts that the script calls are its own.
    """
    none = np.zeros(len(facts.comms), bool)
    if facts.sidecar.ddp.broadcast_buffers is False or not len(facts.comms):
        return none
    wrapped = facts.phases.take(matches(_FORWARD, facts.strings)[facts.phases["name"]])
    passes = HostPasses(intervals.union(*wrapped.bounds))
    caller = passes.calling(facts)
    at_ns = issued_ns(facts.comms)
    found = (facts.comms["op"] == OP_CODE["broadcast"]) & np.isin(roles, GRADIENT_ROLES) & (caller >= 0)
    found &= ~intervals.contains(intervals.union(*facts.script_calls.bounds), at_ns)
    sending = len(np.unique(caller[found]))
    return found if sending and sending >= MIN_PASSES * len(passes) else none
