"""Device work that was launched before the recording began.

A host that does not wait for its device runs ahead of it, by up to 1,024 launches under CUDA. The recording then opens
on operations whose launch calls, and with them the arguments of collectives, it never saw. Training repeats itself:
what a communication stream did before its first recorded launch is what it does at the end of every step.
"""

from __future__ import annotations

import numpy as np

from ddprof.analyzers.facts.model import NO_STRING
from ddprof.tables import NULL, Array, Table, concat

_INHERITED = ("op", "group", "size_bytes", "in_bytes", "group_size", "dtype")


def is_early(ops: Table) -> Array:
    """Operations without a launch call on a stream where none so far had one, in a trace that has launch calls.

    `ops` needs `track`, `start_ns`, `launch_ns` (DEVICE_OPS); bool, shape (ops,).
    """
    launched = ops["launch_ns"] != NULL
    if not launched.any():
        return np.zeros(len(ops), bool)
    first = np.full(int(ops["track"].max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, ops["track"][launched], ops["start_ns"][launched])
    early: Array = ~launched & (ops["start_ns"] < first[ops["track"]])
    return early


def early_comms(comms: Table, ops: Table) -> Array:
    """Which communications are early operations; bool, shape (comms,). None are where nothing runs on a device."""
    return is_early(ops)[comms["device_op"]] if len(ops) else np.zeros(len(comms), bool)


def describe_early(comms: Table, messages: Table, steps: Table, early: Array) -> tuple[Table, Table]:
    """COMMS and MESSAGES with what `early` communications (bool, shape (comms,)) share with those a step later:
    operation, group, sequence, bytes, peers.

    A stream is left as it is where its steps differ in number of communications, or the names do not repeat.
    """
    columns = {name: comms[name].copy() for name in (*_INHERITED, "seq")}
    copied = [messages]
    for track in np.unique(comms["track"][early]):
        mine = np.flatnonzero(comms["track"] == track)
        mine = mine[np.argsort(comms["start_ns"][mine], kind="stable")]
        before, after = mine[early[mine]], mine[~early[mine]]
        period = _period(comms["launch_ns"][after], steps)
        if not period:
            continue
        back = np.arange(len(before), 0, -1)  # how far before the first recorded launch
        twin = after[-back % period]
        unknown = comms["group"][before] == NO_STRING
        other_group = ~unknown & (comms["group"][before] != comms["group"][twin])
        if (comms["name"][before] != comms["name"][twin]).any() or other_group.any():
            continue
        for name in _INHERITED:
            columns[name][before[unknown]] = comms[name][twin[unknown]]
        columns["seq"][before[unknown]] = _sequence(comms["seq"], after, period, back)[unknown]
        silent = ~np.isin(before, messages["comm"])
        copied.append(_messages_of(messages, twin[silent], before[silent]))
    return comms.replace(**columns), concat(messages.schema, copied)


def _period(launch_ns: Array, steps: Table) -> int:
    """Communications of a stream per step; 0 where the steps differ."""
    step = np.searchsorted(steps["start_ns"], launch_ns, side="right") - 1
    inside = (step >= 0) & (launch_ns < steps["end_ns"][np.maximum(step, 0)]) if len(steps) else np.zeros(0, bool)
    counts = np.bincount(step[inside], minlength=len(steps)) if len(steps) else np.zeros(1, np.int64)
    return int(counts[0]) if (counts == counts[0]).all() else 0


def _sequence(seq: Array, after: Array, period: int, back: Array) -> Array:
    """Sequence numbers counted back from the twins' by what they grow in a step; NULL where that is not known."""
    first, second = seq[after[:period]], seq[after[period : 2 * period]]
    if len(second) < period or (first == NULL).any() or (second == NULL).any():
        return np.full(len(back), NULL, np.int64)
    place = -back % period
    steps_back = (back + place) // period
    counted: Array = first[place] - steps_back * (second - first)[place]
    return np.where(counted >= 0, counted, NULL)


def _messages_of(messages: Table, twin: Array, owner: Array) -> Table:
    """The messages of the communications `twin`, as those of `owner` (rows of COMMS, paired)."""
    order = np.argsort(messages["comm"], kind="stable")
    ordered = messages["comm"][order]
    begin, end = np.searchsorted(ordered, twin), np.searchsorted(ordered, twin, side="right")
    rows = [order[b:e] for b, e in zip(begin.tolist(), end.tolist(), strict=True)]
    taken = messages.take(np.concatenate(rows) if rows else np.empty(0, np.int64))
    return taken.replace(comm=np.repeat(owner, end - begin))
