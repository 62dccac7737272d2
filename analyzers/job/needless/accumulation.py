"""Gradients that are reduced after every micro-batch although the optimizer steps once for several.

The sum over micro-batches can be taken before the sum over ranks: `no_sync()` of DistributedDataParallel and
`set_requires_gradient_sync` of FSDP reduce in the last backward pass only (their documentation).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ddprof.analyzers.facts.model import Phase, RankFacts
from ddprof.analyzers.facts.names import OP_CODE
from ddprof.analyzers.job.needless.passes import passes_of
from ddprof.analyzers.job.traffic.gradients import GRADIENT_ROLES
from ddprof.tables import NULL, Array

_REDUCTIONS = (OP_CODE["all_reduce"], OP_CODE["reduce_scatter"])
_ROLES = (*GRADIENT_ROLES, "fsdp_shard")
# A pass reduces what the last one reduces, but for a metric of a few bytes or a bucket that was rebuilt meanwhile.
ALIKE_SHARE = 0.9
MIN_UPDATES = 0.5  # of the optimizer steps in the recording: what happens more rarely is no habit of the loop


def repeated_reductions(facts: RankFacts, roles: Array, models: int) -> tuple[Array, int]:
    """Which communications of a rank reduce gradients that a later pass of the same optimizer step reduces again, and
    the backward passes per optimizer step (0 where none is needless).

    `roles`: of the group of each communication, shape (comms,). `models`: data-parallel models of the job, of which
    each has a last pass of its own.
    """
    none = np.zeros(len(facts.comms), bool)
    backward, updates = passes_of(facts, Phase.BACKWARD), passes_of(facts, Phase.OPTIMIZER)
    if len(backward) < 2 or not len(updates):
        return none, 0
    caller = np.where(_reduces(facts, roles), backward.calling(facts), -1)
    volume = _volume(facts, caller, len(backward))
    following = np.searchsorted(updates.spans[0], backward.spans[1])
    volume[updates.of(backward.spans[0]) >= 0] = 0  # a closure: the optimizer needs the sum of each evaluation
    needless = np.zeros(len(backward), bool)
    counts, found = [], 0
    updated = np.unique(following[following < len(updates)])
    for at, update in enumerate(updated.tolist()):
        mine = np.flatnonzero((following == update) & (volume > 0))
        steps = (int(updated[at + 1]) if at + 1 < len(updated) else update + 1) - update
        kept = max(models, steps)  # optimizers that step one after the other may each have had a pass
        repeated = _alike(volume, mine, kept)
        needless[repeated] = True
        found += len(repeated) > 0
        counts.append(len(repeated) + kept)
    if found < MIN_UPDATES * len(updated) or not found:
        return none, 0
    return (caller >= 0) & needless[np.maximum(caller, 0)], round(float(np.median(counts)))


def _reduces(facts: RankFacts, roles: Array) -> Array:
    """Which communications may reduce gradients.

    Layers that are split over ranks reduce activations in both passes, and need them for every micro-batch: operations
    of a group that the forward pass calls as well are not of gradients.
    """
    comms = facts.comms
    reduces = np.isin(comms["op"], _REDUCTIONS) & np.isin(roles, _ROLES)
    forward = passes_of(facts, Phase.FORWARD).calling(facts) >= 0
    for op in _REDUCTIONS:
        both = np.unique(comms["group"][forward & (comms["op"] == op)])
        reduces &= ~((comms["op"] == op) & np.isin(comms["group"], both))
    return reduces


def _volume(facts: RankFacts, caller: Array, passes: int) -> Array:
    """What each pass reduces: bytes, or where sizes are not recorded the number of calls; shape (passes,)."""
    size = facts.comms["in_bytes"]
    known = bool((size[caller >= 0] != NULL).all())
    weights = np.where(size == NULL, 0, size) if known else np.ones(len(size))
    return np.bincount(caller[caller >= 0], weights=weights[caller >= 0], minlength=passes)


def _alike(volume: Array, passes: Array, kept: int) -> Array:
    """Of the passes before one update those that reduce what one of the last `kept` reduces again."""
    if len(passes) <= kept:
        return passes[:0]
    earlier, last = volume[passes[:-kept]], volume[passes[-kept:]]
    low, high = np.minimum(earlier[:, None], last), np.maximum(earlier[:, None], last)
    found: Array = passes[:-kept][(low >= ALIKE_SHARE * high).any(axis=1)]
    return found


def usual(counts: Sequence[int]) -> int:
    """Of the backward passes per optimizer step that ranks tell, those of the typical rank that tells any."""
    told = [count for count in counts if count]
    return round(float(np.median(told))) if told else 0
