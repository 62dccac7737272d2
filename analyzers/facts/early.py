"""Device work that was launched before the recording began.

A host that does not wait for its device runs ahead of it, by up to 1,024 launches under CUDA. The recording then begins
with operations whose launch calls it does not hold, nor the arguments that collectives take from them. As steps repeat,
a communication stream's work before its first recorded launch is that at the end of every step: each early
communication takes its description from its twin, a whole number of steps later.
"""

from __future__ import annotations

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.model import NO_STRING
from ddprof.tables import NULL, Array, Table, concat

_INHERITED = ("op", "group", "size_bytes", "in_bytes", "dtype")


def is_early(ops: Table) -> Array:
    """Mask of operations that started before the first recorded launch of their stream; shape (ops,).

    On a stream without launch calls, before the first of any stream; none in a trace without them. `ops`: columns
    `track`, `start_ns`, `launch_ns` of DEVICE_OPS.
    """
    launched = ops["launch_ns"] != NULL
    if launched.all() or not launched.any():
        return np.zeros(len(ops), bool)
    first = np.full(int(ops["track"].max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, ops["track"][launched], ops["start_ns"][launched])
    first[first == np.iinfo(np.int64).max] = first.min()
    early: Array = ~launched & (ops["start_ns"] < first[ops["track"]])
    return early


def early_comms(comms: Table, ops: Table) -> Array:
    """Mask of early communications; shape (comms,). None of them is where nothing runs on a device."""
    return is_early(ops)[comms["device_op"]] if len(ops) else np.zeros(len(comms), bool)


def describe_early(comms: Table, messages: Table, steps: Table, early: Array) -> tuple[Table, Table]:
    """COMMS and MESSAGES with each early communication described by its twin: operation, group, bytes, peers and the
    preceding sequence numbers. `early`: bool, shape (comms,).

    A stream is unchanged where its steps differ in their number of communications, or names differ from their twins'.
    """
    columns = {name: comms[name].copy() for name in (*_INHERITED, "seq")}
    copied = [messages]
    for track in np.unique(comms["track"][early]):
        on_stream = np.flatnonzero(comms["track"] == track)
        on_stream = on_stream[np.argsort(comms["start_ns"][on_stream], kind="stable")]
        before, after = on_stream[early[on_stream]], on_stream[~early[on_stream]]
        period = _period(comms["launch_ns"][after], steps)
        if not period:
            continue
        back = np.arange(len(before), 0, -1)  # communications up to the first recorded launch
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
    """Communications of a stream that each step launches; 0 where steps differ."""
    step = intervals.row_at(steps.bounds, launch_ns)
    counts = np.bincount(step[step >= 0], minlength=max(1, len(steps)))
    return int(counts[0]) if (counts == counts[0]).all() else 0


def _sequence(seq: Array, after: Array, period: int, back: Array) -> Array:
    """Sequence numbers of early communications: the twin's less the growth per step; NULL where unknown."""
    first, second = seq[after[:period]], seq[after[period : 2 * period]]
    if len(second) < period or (first == NULL).any() or (second == NULL).any():
        return np.full(len(back), NULL, np.int64)
    place = -back % period
    steps_back = (back + place) // period
    counted: Array = first[place] - steps_back * (second - first)[place]
    return np.where(counted >= 0, counted, NULL)


def _messages_of(messages: Table, twin: Array, owner: Array) -> Table:
    """Copies of the messages of communications `twin`, owned by communications `owner` (paired rows of COMMS)."""
    order = np.argsort(messages["comm"], kind="stable")
    ordered = messages["comm"][order]
    begin, end = np.searchsorted(ordered, twin), np.searchsorted(ordered, twin, side="right")
    rows = [order[b:e] for b, e in zip(begin.tolist(), end.tolist(), strict=True)]
    taken = messages.take(np.concatenate(rows) if rows else np.empty(0, np.int64))
    return taken.replace(comm=np.repeat(owner, end - begin), called_ns=NULL)
