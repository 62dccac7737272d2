"""Flight-recorder dumps as calls: of NCCL (torch 2.4 and later) and of gloo (torch 2.13 and later), JSON or pickle."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby

from ddprof.flight_recorder import Dump, Recorded, RecordedGroup
from ddprof.readers.side_files.lenient import ranks_of
from ddprof.slices.hangs.model import UNKNOWN_OP, Call, Group, StackFrame

_MESSAGE = re.compile(r"(send|recv) (\d+)(->|<-)(\d+)$")  # numbers of the ranks inside the group
_MS = 1_000_000  # ns


def groups_in(dump: Dump) -> dict[str, Group]:
    """The groups of a dump by name; for gloo, whose configuration is empty, from the entries."""
    by_name = {
        name: Group(name, _description(group.desc), _ranks(group)) for name, group in dump.pg_config.items() if name
    }
    unnamed = _ranks(dump.pg_config[""]) if "" in dump.pg_config else ()
    for entry in dump.entries:
        name, description = _label(entry)
        if name not in by_name:
            # A configuration without names is that of the whole job.
            whole = description == "default_pg" or name in ("", "0")
            by_name[name] = Group(name, _description(description), unnamed if whole else ())
    return by_name


def calls_in(dump: Dump, groups: Mapping[str, Group]) -> tuple[Call, ...]:
    """Calls in the order in which they were made. `groups`: give the ranks of a message."""
    messages: Counter[tuple[str, str, int, int]] = Counter()
    calls: list[tuple[Recorded, Call]] = []
    from_the_start = not dump.entries or not dump.entries[0].record_id  # else messages cannot be counted
    for name, entries in _by_group(dump.entries).items():
        ranks = groups[name].ranks if name in groups else ()
        for batch in _batches(entries):
            done = _done(batch[-1])
            if batch[-1].is_p2p and from_the_start:
                calls += [_message(entry, name, ranks, done, messages) for entry in batch if _ends(entry)]
            elif not batch[-1].is_p2p:
                calls.append(_collective(batch, name, done))
    order = {id(entry): at for at, entry in enumerate(dump.entries)}
    return tuple(call for _, call in sorted(((order[id(e)], c) for e, c in calls), key=lambda pair: pair[0]))


def _by_group(entries: Sequence[Recorded]) -> dict[str, list[Recorded]]:
    by_group: dict[str, list[Recorded]] = {}
    for entry in entries:
        by_group.setdefault(_label(entry)[0], []).append(entry)
    return by_group


def _batches(entries: Sequence[Recorded]) -> list[list[Recorded]]:
    """Entries launched together, which share a number; the last one stands for all of them."""
    numbered = groupby(entries, key=lambda e: (bool(e.is_p2p), e.p2p_seq_id if e.is_p2p else e.collective_seq_id))
    return [list(batch) for _, batch in numbered]


def _collective(batch: Sequence[Recorded], group: str, done: bool) -> tuple[Recorded, Call]:
    first = batch[0]
    several = len(batch) - ("coalesced" in _op(batch[-1]))
    op = _op(first) if several < 2 else f"{_op(first)} (first of {several} coalesced)"
    return first, _call(first, group, first.collective_seq_id or 0, op, done)


def _message(
    entry: Recorded, group: str, ranks: Sequence[int], done: bool, counts: Counter[tuple[str, str, int, int]]
) -> tuple[Recorded, Call]:
    """One message of a batch; the counts number the messages between the same two ranks."""
    ends = _ends(entry)
    if ends is None:
        raise ValueError("not a message")
    op, own_rank, other = ends
    own_rank, other = (ranks[rank] if rank < len(ranks) else rank for rank in (own_rank, other))
    counts[group, op, own_rank, other] += 1
    return entry, _call(entry, group, counts[group, op, own_rank, other], op, done, other)


def _call(entry: Recorded, group: str, number: int, op: str, done: bool, peer: int | None = None) -> Call:
    return Call(
        group=group,
        number=number,
        op=op,
        done=done,
        started=None if _is_gloo(entry) or entry.state is None else entry.state != "scheduled",
        peer=peer,
        input_sizes=entry.input_sizes,
        output_sizes=entry.output_sizes,
        input_dtypes=entry.input_dtypes,
        output_dtypes=entry.output_dtypes,
        entered_ns=entry.time_created_ns,
        timeout_ns=entry.timeout_ms * _MS if entry.timeout_ms else None,
        frames=tuple(StackFrame(f.filename or "?", f.line or 0, f.name or "") for f in entry.frames),
    )


def _done(entry: Recorded) -> bool:
    """True for calls that NCCL completed (a call that it retired otherwise has timed out), or gloo retired."""
    if _is_gloo(entry):
        return bool(entry.retired)
    return entry.state == "completed" or entry.time_discovered_completed_ns is not None


def _ends(entry: Recorded) -> tuple[str, int, int] | None:
    """("send" or "recv", own number in the group, the other's); None for the record that closes a batch of messages."""
    match = _MESSAGE.search(entry.profiling_name or "")
    return (match[1], int(match[2]), int(match[4])) if match else None


def _is_gloo(entry: Recorded) -> bool:
    return (entry.profiling_name or "").startswith("gloo:")


def _op(entry: Recorded) -> str:
    return (entry.profiling_name or UNKNOWN_OP).split(":")[-1]


def _label(entry: Recorded) -> tuple[str, str]:
    return (entry.process_group[0], entry.process_group[1]) if len(entry.process_group) > 1 else ("", "")


def _description(text: str | None) -> str:
    return "" if text in (None, "undefined") else str(text)


def _ranks(group: RecordedGroup) -> tuple[int, ...]:
    """The ranks of a group in order; () where an entry is not a rank."""
    return tuple(sorted(ranks_of(group) or ()))
