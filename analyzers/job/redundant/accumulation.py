"""Gradients reduced after every micro-batch although the optimizer steps once for several.

The sum over micro-batches can be taken before the sum over ranks: `no_sync()` of DistributedDataParallel and
`set_requires_gradient_sync` of FSDP reduce in the last backward pass only (their documentation). That is the same only
while gradients are kept: where they are zeroed between two passes (closures, sharpness-aware minimisation, a second
loss), each pass needs its own sum. Autograd shows it: it adds to a gradient that is kept, and stores one that is not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.gradient_tables import GradientAct
from ddprof.analyzers.facts.model import Phase, RankFacts
from ddprof.analyzers.facts.names import OP_CODE
from ddprof.analyzers.job.redundant.passes import HostPasses, passes_of
from ddprof.analyzers.job.traffic.gradients import GRADIENT_ROLES
from ddprof.intervals import Intervals
from ddprof.tables import NULL, Array

_REDUCTIONS = (OP_CODE["all_reduce"], OP_CODE["reduce_scatter"])
_ROLES = (*GRADIENT_ROLES, "fsdp_shard")
# A pass reduces what the last one reduces, but for a metric of a few bytes or a bucket that was rebuilt meanwhile.
ALIKE_SHARE = 0.9
MIN_UPDATES = 0.5  # of the optimizer steps in the recording: what happens more rarely is no habit of the loop


@dataclass(frozen=True)
class Repeated:
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
    """
    none = Repeated(np.zeros(len(facts.comms), bool))
    backward, updates = passes_of(facts, Phase.BACKWARD), passes_of(facts, Phase.OPTIMIZER)
    if len(backward) < 2 or not len(updates):
        return none
    caller = np.where(_reduces(facts, roles), backward.calling(facts), -1)
    volume = _volume(facts, caller, len(backward))
    kept = _kept(facts, backward, not (roles[caller >= 0] == "fsdp_shard").any())
    following = np.searchsorted(updates.spans[0], backward.spans[1])
    volume[updates.of(backward.spans[0]) >= 0] = 0  # a closure: the optimizer needs the sum of each evaluation
    needless = np.zeros(len(backward), bool)
    counts, affected, is_kept = [], 0, True
    updated = np.unique(following[following < len(updates)])
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


def _kept(facts: RankFacts, backward: HostPasses, is_whole: bool) -> Array:
    """State of earlier passes' gradients when each pass brought its own, shape (passes,): zeroed (_FRESH), or
    accumulated and untouched in between (_ADDED).

    `is_whole`: parameters hold their gradients, unlike FSDP's, which are gathered anew for each pass.
    """
    start, end = backward.spans

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
    forward = passes_of(facts, Phase.FORWARD).calling(facts) >= 0
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
