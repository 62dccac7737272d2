"""Parts of a host's time that a setting shrinks, and what a rank loses to anomaly mode, hooks and meetings."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.gradients import is_gradient
from ddprof.analyzers.facts.model import Once, Phase, RankFacts, Work
from ddprof.analyzers.facts.names import ENGINE, matches
from ddprof.analyzers.facts.script.calls import hook_name, is_meeting
from ddprof.analyzers.facts.work import blocked, compute_work, computes
from ddprof.derived_once import remembered
from ddprof.intervals import EMPTY, Intervals
from ddprof.tables import Array, Table, distinct

# Operators of CPU ranks that a loop of the script calls one by one where one call for all would do.

LEAST_CALLS = 60  # of an operator with equal shapes in a step; micro-batches of a few layers make some dozen
LONGEST_US = 100.0  # of such a call on average: five operators of 20 us, each of which is mostly its call
INDEXING = re.compile(rf"^aten::(select|slice)(_backward)?$|^({ENGINE})?(Select|Slice)Backward\d*$")
_CLASS = re.compile(r"Optimizer\.step#(\w+)\.step")
WRAPPERS = ("ZeroRedundancyOptimizer",)  # its own step holds that of the class it wraps
# Of torch.optim 2.13: they call no operator more often than there are parameters, or as often as the method asks for.
_OPTIMIZERS = (
    *("ASGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "LBFGS", "Muon", "NAdam", "RAdam"),
    *("RMSprop", "Rprop", "SGD", "SparseAdam", *WRAPPERS),
)
_BACKWARD = re.compile(rf"^{ENGINE}|Backward\d*$")
PYTHON_NS = 1_000_000  # between two operators; longer is Python of the script (facts/cpu/rank.py)


@remembered
def looped_operators(facts: RankFacts) -> Array:
    """Mask of operators that are called more often in a step, with equal shapes, than the model has parameters, and
    are short, or index a tensor: its backward pass fills a whole tensor for each index. Shape (host_operators,).
    Layers that follow one another call none as often: each has parameters. Nodes of the backward pass count where the
    forward pass calls so too: an operator may loop inside, as a GRU does.
    """
    ops = facts.host_operators
    if not len(ops) or not computes(facts):
        return np.zeros(len(ops), bool)
    start, stepping = ops["start_ns"], _stepping_as_pytorch(facts)
    counted = facts.is_issued_in_steps(start) & ~intervals.contains(stepping, start)
    _, which = distinct(ops["name"], ops["shape"])
    calls = np.bincount(which, weights=counted) / len(facts.steps)
    mean_us = np.bincount(which, weights=ops["dur_ns"] * counted) / 1e3 / np.maximum(calls * len(facts.steps), 1.0)
    gradients = float((is_gradient(facts.strings)[ops["name"]] & counted).sum()) / len(facts.steps)
    short = ((calls >= LEAST_CALLS) & (mean_us <= LONGEST_US))[which]
    looped = (short | matches(INDEXING, facts.strings)[ops["name"]]) & (calls > gradients)[which] & counted
    forward = looped & ~is_backward(facts.strings)[ops["name"]]
    return np.asarray(looped & (gradients > 0) & bool(forward.any()))


def optimizer_classes(facts: RankFacts) -> dict[int, str]:
    """Classes of a rank's optimizers, by the name of PyTorch's range around their steps."""
    names = np.unique(facts.phases["name"]).tolist()
    return {name: match[1] for name in names if (match := _CLASS.match(facts.strings[name]))}


def _stepping_as_pytorch(facts: RankFacts) -> Intervals:
    """Intervals of optimizers, less those that the steps of the script's own classes spend beside PyTorch's."""
    own: list[int] = []
    pytorch: list[int] = []
    for name, one in optimizer_classes(facts).items():
        (pytorch if one in _OPTIMIZERS else own).append(name)
    spans = [intervals.union(*facts.phases.bounds_of(np.isin(facts.phases["name"], names))) for names in (own, pytorch)]
    return intervals.subtract(facts.phase_time(Phase.OPTIMIZER), intervals.subtract(*spans))


def is_backward(strings: Sequence[str]) -> Array:
    """Mask of the strings that name a node of the backward pass, by its class; shape (strings,)."""
    return matches(_BACKWARD, strings)


def in_loops(facts: RankFacts) -> Intervals:
    """Intervals of such operators, with the Python between them."""
    rows = np.flatnonzero(looped_operators(facts))
    if not len(rows):
        return EMPTY
    start = facts.host_operators["start_ns"][rows]
    end = start + facts.host_operators["dur_ns"][rows]
    until = np.append(start[1:], end[-1])
    follows = np.append(np.diff(rows) == 1, False) & (until - end < PYTHON_NS)
    return intervals.union(start, np.where(follows, np.maximum(until, end), end))


def anomaly_us(facts: RankFacts) -> float:
    """Host time that anomaly mode takes, us per step."""
    return anomaly_part_us(facts, facts.anomaly_work)


def anomaly_held_us(facts: RankFacts) -> float:
    """Time that a rank loses to anomaly mode, us per step: on a CPU rank all, else its kernels and idle time."""
    if computes(facts) or not len(facts.anomaly_work):
        return anomaly_us(facts)
    work, ops = facts.anomaly_work, facts.device_ops
    idle = intervals.union(*facts.gaps_of("host_launch", "host_sync").bounds)
    idle_ns = float((work["share"] * intervals.overlap(idle, *work.bounds)).sum())
    checks = intervals.union(*work.bounds_of(work["is_check"]))
    searching = ops.bounds_of((ops["work"] != Work.COMM) & intervals.contains(checks, ops["launch_ns"]))
    busy_ns = float(intervals.overlap(intervals.union(*searching), *facts.steps.bounds).sum())
    return (idle_ns + busy_ns) / 1e3 / len(facts.steps)


def anomaly_part_us(facts: RankFacts, work: Table) -> float:
    """Host time of anomaly mode in rows of ANOMALY_WORK, us per step."""
    inside = facts.is_issued_in_steps(work["start_ns"])
    spent_ns = np.where(inside, work["share"] * (work["end_ns"] - work["start_ns"]), 0.0)
    return float(spent_ns.sum()) / 1e3 / len(facts.steps)


def in_hooks(facts: RankFacts) -> Intervals:
    """Intervals of the host in hooks outside the collectives that they call, and wait for; on the rank's own clock."""
    calls = facts.comms["launch_ns"], facts.comms["launch_end_ns"]  # both are missing, and equal, where there was none
    return intervals.subtract(intervals.union(*facts.comm_hooks.bounds), intervals.merge(calls, blocked(facts)))


def held_by_hooks_us(facts: RankFacts) -> float:
    """Time that a rank loses to hooks per step: on a CPU rank all, else that in which the device idles for launches."""
    if not len(facts.comm_hooks):
        return 0.0
    held = in_hooks(facts)
    if not computes(facts):
        held = intervals.intersect(held, facts.gaps_of("host_launch").bounds)
    return facts.per_step_us(held)


def longest_hook(facts: RankFacts) -> str:
    """The function that most of the time is spent in, as people write it."""
    hooks = facts.comm_hooks
    names, which = np.unique(hooks["name"], return_inverse=True)
    spent = np.bincount(which, weights=hooks["end_ns"] - hooks["start_ns"])
    return hook_name(facts, int(names[np.argmax(spent)]))


def meeting_spans(facts: RankFacts) -> Intervals:
    """Time from each call that makes ranks meet to the end of its communication, on the rank's clock."""
    return intervals.merge(facts.meetings.bounds, facts.comms.bounds_of(is_meeting(facts)))


def held_in_meetings_us(facts: RankFacts) -> float:
    """Time from a meeting until the rank computes again, us per step; includes refilling its queue."""
    spans = meeting_spans(facts)
    if not len(spans[0]):
        return 0.0
    start, end = intervals.subtract(intervals.union(*facts.steps.bounds), compute_work(facts))
    first = np.minimum(np.searchsorted(spans[1], start, side="right"), len(spans[0]) - 1)
    begins = np.maximum(start, spans[0][first])
    held = (spans[1][first] > start) & (begins < end)
    return float((end - begins)[held].sum()) / 1e3 / len(facts.steps)


# Parts of a host's time that a setting shrinks, and that the replay scales by name (`scale_part`).

COMPILING, UNIT_HOOKS, STEPPING, LOOPED = "compiling", "unit hooks", "optimizer", "looped operators"


def part_by_step_ns(facts: RankFacts, part: str) -> Array:
    """Time of the host in a part, a constant of this module, in each step; shape (steps,)."""
    return intervals.overlap(part_of(facts, part), *facts.marks)


def part_us(facts: RankFacts, part: str) -> float:
    """Time of the host in a part, us per step."""
    return facts.host_us(part_of(facts, part))


def part_of(facts: RankFacts, part: str) -> Intervals:
    """Intervals of the host in a part, sorted."""
    return _PARTS[part](facts)


def _unit_hooks(facts: RankFacts) -> Intervals:
    """FSDP's Python around the passes of its units, on a CPU rank: a device may hide its host's."""
    return intervals.subtract(intervals.union(*facts.unit_hooks.bounds), blocked(facts)) if computes(facts) else EMPTY


_PARTS: Mapping[str, Callable[[RankFacts], Intervals]] = {
    # torch.compile works, as its own records or first runs far longer than later ones tell.
    COMPILING: lambda facts: intervals.union(*facts.once.bounds_of(facts.once["kind"] == Once.FIRST_RUN)),
    UNIT_HOOKS: _unit_hooks,
    STEPPING: lambda facts: facts.phase_time(Phase.OPTIMIZER) if computes(facts) else EMPTY,  # on a CPU rank
    LOOPED: in_loops,
}
