"""Messages between ranks as both ends recorded them, and the passes between a stage's messages.

Ends are counted separately, since the other end has a record that one end lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.early import early_comms
from ddprof.analyzers.facts.model import Phase, RankFacts
from ddprof.analyzers.facts.names import ENGINE
from ddprof.analyzers.facts.work import behind_update, computed_in_steps, computes, issued_ns, launched_in
from ddprof.analyzers.job.matching import Matched
from ddprof.intervals import Intervals
from ddprof.tables import NULL, Array

Link = tuple[int, int]  # positions of sender and receiver
NOT_TRACED = -1


@dataclass(frozen=True)
class Messages:
    """Messages launched in the steps (CPU ranks: called), one row per end that recorded it; parallel arrays."""

    rank: Array  # position of the end that recorded it
    peer: Array  # position of the other one; NOT_TRACED
    sends: Array  # bool: this end sends
    step: Array  # position in the rank's steps
    when_ns: Array  # launch, own clock
    comm: Array  # row of the rank's comms
    instance: Array  # the same at both ends
    steps: Array  # of each rank, shape (ranks,)


def step_messages(ranks: Sequence[RankFacts], matched: Matched) -> Messages:
    """All messages of the steps."""
    of_message = np.flatnonzero(matched.is_message[matched.instance]) if len(matched.instance) else np.empty(0, int)
    position = {f.identity.rank if f.identity.rank is not None else p: p for p, f in enumerate(ranks)}
    numbers = np.unique(matched.peer[of_message])
    places = np.array([position.get(n, NOT_TRACED) for n in numbers.tolist()], np.int64)
    rank = matched.rank[of_message]
    step, when = np.full((2, len(of_message)), -1, np.int64)
    for p, facts in enumerate(ranks):
        of_rank = np.flatnonzero(rank == p)
        if len(of_rank) and len(facts.steps):
            comm = matched.comm[of_message[of_rank]]
            when[of_rank] = issued_ns(facts.comms)[comm]
            is_early = early_comms(facts.comms, facts.device_ops)[comm]
            at = intervals.row_at(facts.marks, when[of_rank]) + behind_update(facts, when[of_rank])
            step[of_rank] = np.where(is_early | (at == len(facts.steps)), -1, at)
    kept = step >= 0
    rows = of_message[kept]
    return Messages(
        rank[kept],
        places[np.searchsorted(numbers, matched.peer[rows])],
        matched.side[rows] == 1,
        step[kept],
        when[kept],
        matched.comm[rows],
        matched.instance[rows],
        np.array([len(f.steps) for f in ranks]),
    )


def counts_by_link(messages: Messages) -> dict[Link, dict[int, Array]]:
    """Messages of each step by position of the end that recorded them, for each link with both ends traced."""
    traced = np.flatnonzero(messages.peer != NOT_TRACED)
    if not len(traced):
        return {}
    ranks = len(messages.steps)
    rank, peer, sends = messages.rank[traced], messages.peer[traced], messages.sends[traced]
    end = (np.where(sends, rank * ranks + peer, peer * ranks + rank)) * 2 + sends
    order = np.argsort(end, kind="stable")
    ends, first = np.unique(end[order], return_index=True)
    by_link: dict[Link, dict[int, Array]] = {}
    for one, rows in zip(ends.tolist(), np.split(traced[order], first[1:]), strict=True):
        sender, receiver = divmod(one // 2, ranks)
        observer = sender if one % 2 else receiver
        counts = np.bincount(messages.step[rows], minlength=int(messages.steps[observer]))
        by_link.setdefault((sender, receiver), {})[observer] = counts
    return by_link


def confirmed(observed: Mapping[Link, Mapping[int, Array]], links: Sequence[Link]) -> tuple[int, int, bool]:
    """The least and the most messages per step on any of some links, and whether several ends recorded the most.

    Records may be lost but never invented: the largest count on more than one end is the true one.
    """
    ends = [counts for link in links for counts in observed.get(link, {}).values() if len(counts)]
    if not ends:
        return 0, 0, False
    most = max(int(counts.max()) for counts in ends)
    return min(int(c.min()) for c in ends), most, sum(int(c.max()) == most for c in ends) > 1


# Forward and backward passes of a pipeline stage: compute that its host launches, or runs, between two messages.
#
# Messages bound a pass. Autograd launches the backward pass on a thread of its own, and on a CPU rank runs it by its
# engine. Both bounds survive lost records, so that passes can be counted where messages cannot.

# Of the median pass: what takes less is no pass (zeroing gradients, clipping, copies of received tensors).
LEAST_PASS = 0.1


@dataclass(frozen=True)
class Passes:
    """Passes of one rank in the order of their launch; parallel arrays. `knows_backward`: they are told apart.

    `after`: messages called before each. `of_op`: the pass of each row of `operations`, -1 for none.
    """

    step: Array
    is_forward: Array  # bool; True of all where `knows_backward` is False
    busy_ns: Array  # time of their kernels or operators
    knows_backward: bool
    after: Array = field(default_factory=lambda: np.empty(0, np.int64))
    of_op: Array = field(default_factory=lambda: np.empty(0, np.int64))

    def per_step(self, is_forward: bool, steps: int) -> Array:
        """Forward (or backward) passes per step."""
        return np.bincount(self.step[self.is_forward == is_forward], minlength=steps)

    def hands_on(self) -> Array:
        """Mask of the steps with a backward pass behind a forward pass: a message was called in between."""
        is_turn = self.is_forward[:-1] & ~self.is_forward[1:] & (self.step[:-1] == self.step[1:])
        step, calls = self.step[:-1][is_turn], np.diff(self.after)[is_turn]
        return np.isin(np.unique(step), step[calls > 0])

    def usual_order(self) -> Array:
        """`is_forward` of the passes of a step, as most steps have it; () where no order is usual."""
        orders = Counter(self.is_forward[self.step == step].tobytes() for step in np.unique(self.step).tolist())
        order, times = orders.most_common(1)[0] if orders else (b"", 0)
        return np.frombuffer(order if 2 * times > orders.total() else b"", bool)


NO_PASSES = Passes(np.empty(0, np.int64), np.empty(0, bool), np.empty(0, np.int64), False)


def operations(facts: RankFacts) -> Intervals:
    """Starts and ends of what passes consist of: operations of the device, or outermost operators of a CPU rank."""
    ops = facts.host_operators
    return (ops["start_ns"], ops["start_ns"] + ops["dur_ns"]) if computes(facts) else facts.device_ops.bounds


def passes_of(facts: RankFacts) -> Passes:
    """The passes of a rank; none where no step has one."""
    rows, step, at_ns, is_forward = _of_operators(facts) if computes(facts) else _of_kernels(facts)
    if not len(rows):
        return NO_PASSES
    sent = facts.comms["launch_ns"][np.unique(facts.messages["comm"])]
    bounds = np.stack((step, np.searchsorted(np.sort(sent[sent != NULL]), at_ns), is_forward))
    starts = np.flatnonzero(np.concatenate(([True], (bounds[:, 1:] != bounds[:, :-1]).any(axis=0))))
    start_ns, end_ns = operations(facts)
    busy = np.add.reduceat((end_ns - start_ns)[rows], starts)
    kept = busy >= LEAST_PASS * np.median(busy[busy >= LEAST_PASS * busy.max()])
    of_op = np.full(len(start_ns), -1)
    number = np.where(kept, np.cumsum(kept) - 1, -1)
    of_op[rows] = np.repeat(number, np.diff(np.append(starts, len(rows))))
    starts, busy = starts[kept], busy[kept]
    is_forward = bounds[2, starts].astype(bool)
    return Passes(step[starts], is_forward, busy, not is_forward.all(), bounds[1, starts], of_op)


def _of_kernels(facts: RankFacts) -> tuple[Array, Array, Array, Array]:
    """Rows of the kernels of passes in the order of their launch, with step, launch, and whether the forward thread
    launched them.
    """
    ops = facts.device_ops
    rows, step = computed_in_steps(facts)
    kept = (ops["launch_ns"] != NULL)[rows] & ~launched_in(facts, Phase.OPTIMIZER)[rows]
    order = np.flatnonzero(kept)[np.argsort(ops["launch_ns"][rows[kept]], kind="stable")]
    rows, step = rows[order], step[order]
    thread = ops["thread"][rows]
    forward_thread = facts.main_thread if facts.main_thread in thread else thread[:1]
    return rows, step, ops["launch_ns"][rows], thread == forward_thread


def _of_operators(facts: RankFacts) -> tuple[Array, Array, Array, Array]:
    """Rows of the operators of a CPU rank's passes in order, with step, start, and whether autograd's engine did not
    run them. Where forward passes are marked, what runs outside (batches, losses) is none.
    """
    ops, forward = facts.host_operators, facts.phase_time(Phase.FORWARD)
    by_engine = np.array([text.startswith(ENGINE) for text in facts.strings], bool)[ops["name"]]
    step = intervals.row_at(facts.marks, ops["start_ns"])
    inside = ~intervals.contains(facts.phase_time(Phase.OPTIMIZER), ops["start_ns"])
    if len(forward[0]):
        inside &= by_engine | intervals.contains(forward, ops["start_ns"])
    rows = np.flatnonzero(inside & (step >= 0))
    return rows, step[rows], ops["start_ns"][rows], ~by_engine[rows]
