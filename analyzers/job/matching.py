"""Matching of the ranks' COMMS into collectives: by group and sequence number, else by order within the step.

Never by name or duration: names recur, and durations differ between members.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from msgspec import Struct

from ddprof.analyzers.facts.early import early_comms
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.names import POINT_TO_POINT
from ddprof.analyzers.facts.stepping.steps import RESOLUTION_NS
from ddprof.analyzers.facts.work import behind_update, issued_ns
from ddprof.analyzers.job.groups import GroupKey, global_peers
from ddprof.intervals import Intervals
from ddprof.model import HealthNote
from ddprof.tables import NULL, Array, distinct, of_kinds, ordinals

BEFORE = -1  # step label of what precedes the steps
AFTER = -2  # and of what follows them
NOWHERE = -3  # less the rank's number: of what lies outside of the steps of a file that lacks some of it
UNNUMBERED = 0
FEWEST = 3  # messages that both ends recorded
NEARLY = 0.9  # of these arrive after they were sent: an event may be lost
ENOUGH = 0.5  # of the shorter side: at larger shifts most of it has no other end
_ENDS = ("src", "dst", "group", "tag")  # of a message


class InOrder(Struct, frozen=True):
    """Order by which ranks' operations are told to be the same where nothing numbers them: that in the step.

    `are_steps_apart`: of messages that in the recording, as the ranks' steps begin apart. `from_end`: what no numbered
    step holds is counted backwards, as windows opened apart and closed together.
    """

    are_steps_apart: bool = False
    from_end: bool = False


IN_STEP = InOrder()


@dataclass(frozen=True)
class Matched:
    """Parallel arrays, one entry per (instance, member): see model.MEMBERS; with the kind of each instance."""

    instance: Array
    rank: Array
    comm: Array
    side: Array  # 1 for the sender of a message, 0 otherwise
    op: Array  # per instance
    group: Array  # per instance
    is_message: Array  # per instance
    size_bytes: Array  # per instance
    notes: tuple[HealthNote, ...] = ()
    # Rank number of the other end of a message, like `rank`; NULL where it is not known, and of collectives.
    peer: Array = field(default_factory=lambda: np.empty(0, np.int64))

    def rows_by_rank(self, count: int) -> list[Array]:
        """The entries of each of `count` ranks, in order."""
        ends = np.cumsum(np.bincount(self.rank, minlength=count))
        return np.split(np.argsort(self.rank, kind="stable"), ends[:-1])


def step_of(steps: Intervals, at_ns: Array) -> Array:
    """Position of the last step that has begun at each instant; -1 before the first, len(steps) after the last.
    `steps`: of the device, or between the marks of the host.
    """
    begun, ended = steps
    return np.where(at_ns >= ended[-1], len(ended), np.searchsorted(begun, at_ns, side="right") - 1)


def match(
    ranks: Sequence[RankFacts],
    group_ids: Sequence[Array],
    keys: Sequence[GroupKey],
    in_order: InOrder = IN_STEP,
) -> Matched:
    """All instances of the job, collectives first, then point-to-point messages."""
    parts = [_collective_rows(position, facts, group_ids[position]) for position, facts in enumerate(ranks)]
    rows = {name: np.concatenate([p[name] for p in parts]) for name in parts[0]} if parts else {}
    notes: list[HealthNote] = []
    collective = _instances(rows, _collective_key(rows, notes, in_order.from_end))
    messages = _message_rows(ranks, group_ids, keys)
    if not in_order.are_steps_apart:
        # A window may open in its first step, of which all is recorded to the end.
        opened = [f.steps["index"][0] for f in ranks if f.step_source == "profiler_step" and len(f.steps)]
        key = _ordinal_key(messages, (*_ENDS, "step"), np.isin(messages["step"], opened))
    else:
        pair = _combine(*(messages[name] for name in _ENDS))
        ordinal = ordinals(_combine(pair, messages["rank"], messages["side"]))
        key = _combine(pair, _numbers_in_order(ranks, messages, pair, ordinal))
    is_timed = ~messages.pop("lost").astype(bool)  # they count in the order, but nothing is known of when they ran
    messages = {name: values[is_timed] for name, values in messages.items()}
    matched = _instances(messages, key[is_timed])
    shift = len(collective["op"])
    matched["instance"] = matched["instance"] + shift
    other_end = np.where(messages["side"] == 1, messages["dst"], messages["src"])
    return Matched(
        **{name: np.concatenate((collective[name], matched[name])) for name in matched},
        is_message=np.arange(shift + len(matched["op"])) >= shift,
        notes=tuple(notes),
        peer=np.concatenate((np.full(len(collective["rank"]), NULL), other_end)),
    )


def _collective_rows(position: int, facts: RankFacts, group_ids: Array) -> dict[str, Array]:
    comms = facts.comms
    rows = np.flatnonzero(~of_kinds(comms["op"], POINT_TO_POINT))
    early = early_comms(comms, facts.device_ops)[rows]
    order, step = _ordered(facts, issued_ns(comms)[rows], early)
    rows = rows[order]
    return {
        "rank": np.full(len(rows), position),
        "comm": rows,
        "group": group_ids[rows],
        "seq": comms["seq"][rows],
        "step": step,
        "op": comms["op"][rows].astype(np.int64),
        "size_bytes": comms["size_bytes"][rows],
        "side": np.zeros(len(rows), np.int64),
    }


def _ordered(facts: RankFacts, when: Array, early: Array, ahead: Array | int = 0) -> tuple[Array, Array]:
    """Order of some communications by the instant `when` each was issued, and the step label of each in that order.

    Communications launched before the window (mask `early`; facts/early.py) come first and belong to no step, those
    `ahead` to the next one.
    """
    order = np.lexsort((when, ~early))
    return order, np.where(early, BEFORE, _step_label(facts, when, ahead))[order]


def _in_call_order(facts: RankFacts) -> tuple[Array, Array]:
    """Order of the rank's messages by call, with step labels; calls survive where kernels or launches are lost."""
    messages = facts.messages
    unknown = messages["called_ns"] == NULL
    when = np.where(unknown, issued_ns(facts.comms)[messages["comm"]], messages["called_ns"])
    early = unknown & early_comms(facts.comms, facts.device_ops)[messages["comm"]]
    return _ordered(facts, when, early, behind_update(facts, when))


def _step_label(facts: RankFacts, when: Array, ahead: Array | int) -> Array:
    """Number of the step that contains each instant, as the profiler marks it on all ranks; BEFORE or AFTER outside.

    UNNUMBERED where the profiler marks no steps. Outside the steps of a file that recorded some in part, order means
    nothing: the label is one that no other rank has.
    """
    if facts.step_source != "profiler_step":
        return np.full(len(when), UNNUMBERED)
    position = np.minimum(step_of(facts.marks, when) + ahead, len(facts.steps))
    inside = (position >= 0) & (position < len(facts.steps))
    number = facts.steps["index"][np.clip(position, 0, len(facts.steps) - 1)]
    if facts.torn_steps:
        return np.where(inside, number, NOWHERE - (facts.identity.rank or 0))
    return np.where(inside, number, np.where(position < 0, BEFORE, AFTER))


def _collective_key(rows: dict[str, Array], notes: list[HealthNote], from_end: bool) -> Array:
    """Key of each row's instance: the sequence number in groups where every row has one, else the order in the step."""
    ordinal = _ordinal_key(rows, ("group", "step"), from_end & (rows["step"] == UNNUMBERED))
    if not len(rows["group"]):
        return ordinal
    lacking = np.unique(rows["group"][rows["seq"] == NULL])
    by_seq = ~np.isin(rows["group"], lacking)
    if by_seq.any():
        key = _combine(rows["group"], rows["seq"])
        # Coalesced collectives share one sequence number: their order tells them apart.
        order = ordinals(_combine(key, rows["rank"]))
        key = _combine(key, np.where(by_seq, order, 0))
        ordinal = np.where(by_seq, key, ordinal + int(key.max()) + 1)
    _check_counts(rows, by_seq, notes)
    return ordinal


def _check_counts(rows: dict[str, Array], by_seq: Array, notes: list[HealthNote]) -> None:
    loose = ~by_seq
    for group in np.unique(rows["group"][loose]):
        of_group = loose & (rows["group"] == group)
        keys = np.stack((rows["step"][of_group], rows["rank"][of_group]))
        pairs, counts = np.unique(keys, axis=1, return_counts=True)
        # Of one step: a step may hold more than the next, as where an optimizer steps every second time.
        begins = np.unique(pairs[0], return_index=True)[1]
        uneven = np.minimum.reduceat(counts, begins) < np.maximum.reduceat(counts, begins)
        if uneven.any() and (rows["step"][of_group] >= 0).all():
            issue = "ranks recorded different numbers of collectives and no sequence numbers"
            notes.append(HealthNote(issue, "collectives are matched by order; waits of that group may be wrong"))
            return


def _ordinal_key(rows: dict[str, Array], fields: tuple[str, ...], from_end: Array | bool = False) -> Array:
    """Key of each row by its ordinal among the rows of its rank (and side) that are equal in `fields`.

    Rows are in launch order per rank. What precedes the first step is counted backwards from it, because windows of
    ranks open at different instants, and so are the rows of `from_end`.
    """
    if not len(rows["rank"]):
        return np.empty(0, np.int64)
    key = _combine(*(rows[name] for name in fields))
    own_key = _combine(key, rows["rank"], rows["side"])
    backwards = ordinals(own_key[::-1])[::-1]
    is_backwards = (rows["step"] == BEFORE) | from_end
    return _combine(key, np.where(is_backwards, backwards, ordinals(own_key)))


def _combine(*columns: Array) -> Array:
    """One dense integer key per distinct row of columns."""
    return distinct(*columns)[1]


def _instances(rows: dict[str, Array], key: Array) -> dict[str, Array]:
    """Columns of `Matched`: by entry, and by instance what all its entries have in common."""
    _, first, instance = np.unique(key, return_index=True, return_inverse=True)
    by_entry = {name: rows[name] for name in ("rank", "comm", "side")}
    return {"instance": instance, **by_entry, **{name: rows[name][first] for name in ("op", "group", "size_bytes")}}


def _message_rows(ranks: Sequence[RankFacts], group_ids: Sequence[Array], keys: Sequence[GroupKey]) -> dict[str, Array]:
    """One row per payload and side; `src`, `dst` are rank numbers, `side` 1 for the sender."""
    parts: list[dict[str, Array]] = []
    for position, facts in enumerate(ranks):
        me = facts.identity.rank if facts.identity.rank is not None else position
        group = group_ids[position][facts.messages["comm"]]
        peer = global_peers(facts.messages["peer"], group, keys, me)
        order, step = _in_call_order(facts)
        messages, peer = facts.messages.take(order), peer[order]
        is_send = messages["is_send"]
        parts.append(
            {
                "rank": np.full(len(order), position),
                "comm": messages["comm"],
                "group": group[order],
                "tag": messages["tag"],
                "step": step,
                "op": facts.comms["op"][messages["comm"]].astype(np.int64),
                "size_bytes": messages["size_bytes"],
                "side": is_send.astype(np.int64),
                "lost": messages["is_lost"],
                "src": np.where(is_send, me, peer),
                "dst": np.where(is_send, peer, me),
            }
        )
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _numbers_in_order(ranks: Sequence[RankFacts], messages: dict[str, Array], pair: Array, ordinal: Array) -> Array:
    """The `ordinal` of each message of its pair and side, of receivers shifted to the send that it belongs to.

    A stage of a pipeline written by hand receives before its first forward pass, with which its step begins: its first
    message lies in the step before, or before the window. The messages of a pair arrive in the order in which they are
    sent, and none before it is sent; of the shifts that allow it the one with the shortest way is the true one.

    `messages`: rows in call order per rank; `pair`: equal for rows with the same two ends, group and tag.
    """
    numbers = ordinal.copy()
    start, end = (_times(ranks, messages, name) for name in ("start_ns", "end_ns"))
    is_kept = ~messages["lost"].astype(bool)
    is_send = messages["side"] == 1
    for each in np.unique(pair):
        sent, received = (np.flatnonzero((pair == each) & side) for side in (is_send, ~is_send))
        if len(sent) and len(received):
            shift = _shift(start[sent], end[received], is_kept[sent], is_kept[received])
            numbers[received] += shift
    return numbers


def _times(ranks: Sequence[RankFacts], messages: dict[str, Array], name: str) -> Array:
    times = np.zeros(len(messages["rank"]), np.int64)
    for position, facts in enumerate(ranks):
        of_rank = messages["rank"] == position
        times[of_rank] = facts.comms[name][messages["comm"][of_rank]]
    return times


def _shift(sent_ns: Array, received_ns: Array, is_sent: Array, is_received: Array) -> int:
    """Number of sends before the one that the first receive belongs to; 0 where no shift is possible."""
    least = max(FEWEST, int(ENOUGH * min(len(sent_ns), len(received_ns))))
    for shift in range(len(sent_ns) - least, least - len(received_ns) - 1, -1):
        first, last = max(0, -shift), min(len(received_ns), len(sent_ns) - shift)
        here, there = slice(first, last), slice(first + shift, last + shift)
        both = is_received[here] & is_sent[there]
        if both.sum() >= FEWEST and (received_ns[here] + RESOLUTION_NS >= sent_ns[there])[both].mean() >= NEARLY:
            return shift
    return 0
