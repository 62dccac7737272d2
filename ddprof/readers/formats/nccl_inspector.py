"""Logs of NCCL's Inspector plugin (plugins/profiler/inspector, output v4.0 to v4.3) and of RCCL's copy: JSON lines.

A line is one finished collective or message of one communicator. When it ran is told by the times of its kernels, which
the plugin writes with NCCL_INSPECTOR_DUMP_VERBOSE=1 alone; a log without them holds durations that lie nowhere. Since
v4.3 only the line before a batch ("dump_stats") names communicator and process. Not every call is in a log: v4.0, and
RCCL, keep the latest of each dump interval, later versions a ring that overwrites, and all leave small messages out.
A size is count times type as the call has them: one rank's part of an AllGather and of a ReduceScatter.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from msgspec import Struct

from ddprof.errors import NoUsableInput
from ddprof.model import Device, HealthNote, Identity, Kind, ProcessGroup, RankTrace
from ddprof.readers.columns.event_columns import EventColumns
from ddprof.readers.columns.finish import finish
from ddprof.readers.columns.groups import number_in_communicator
from ddprof.readers.format import Format, Sample
from ddprof.readers.json_text.load import load_records
from ddprof.readers.json_text.trace_event import as_text
from ddprof.readers.numbers import MAX_NS, near_each_other, one_int, one_rank
from ddprof.readers.source import Source
from ddprof.tables import NULL

_VERSION = re.compile(rb'"inspector_output_format_version"\s*:')
_WORDS = (b"inspector_output_format_version",)
_US = 1000
_MOST_CALLS = 2**40  # a million calls a second for twelve days
_MOST_BYTES = 2**50  # of one message: a million times the memory of a GPU


class _Done(Struct, frozen=True):
    """One collective or message: communicator (its hash), rank in it, its size, and times."""

    communicator: str
    rank: int | None
    members: int | None
    op: str
    number: int
    size_bytes: int
    peer: int | None
    start_ns: int
    dur_ns: int
    host: str | None
    pid: int

    @property
    def bytes_in_and_out(self) -> tuple[int, int]:
        """Bytes that this rank sends and receives."""
        whole = self.size_bytes * self.members if self.size_bytes != NULL and self.members else NULL
        whole = whole if whole < _MOST_BYTES else NULL
        if self.op == "AllGather":
            return self.size_bytes, whole
        return (whole, self.size_bytes) if self.op == "ReduceScatter" else (self.size_bytes, NULL)


@dataclass
class _Batch:
    """Header line of a batch: communicator and process of the next lines, and their number by kind."""

    header: Any = None
    metadata: Any = None
    left: dict[str, int] = field(default_factory=dict)


def read_nccl_inspector(source: Source) -> RankTrace:
    """The communication of one process. Raises NoUsableInput where the log has no times."""
    loaded, notes = load_records(source.path, source.member)
    records, orphans = _with_context(loaded)
    stated = list(_performances(records))
    timed = [done for record, what, kind in stated if (done := _done(record, what, kind)) is not None]
    if not stated:
        raise NoUsableInput(f"{source.label}: a log of NCCL Inspector without a collective")
    if not timed:
        raise NoUsableInput(
            f"{source.label}: a log of NCCL Inspector without the times of its {len(stated)} collectives ran: record "
            "with NCCL_INSPECTOR_DUMP_VERBOSE=1"
        )
    near = near_each_other(np.array([done.start_ns for done in timed], np.int64))
    timed = sorted((d for d, ok in zip(timed, near.tolist(), strict=True) if ok), key=lambda d: d.start_ns)
    notes = [*notes, *_losses(source, loaded, stated, orphans)]
    if len(timed) < len(stated):
        issue = f"{source.label}: {len(stated) - len(timed)} collectives without times"
        notes = [*notes, HealthNote(issue, "left out")]
    # The largest communicator is taken for the job's; its rank where there is only one.
    world = max((done.members for done in timed if done.members), default=None)
    ranks = {done.rank for done in timed if done.members == world and done.rank is not None}
    rank = ranks.pop() if len(ranks) == 1 else None
    columns = EventColumns()
    _fill(columns, timed, world)
    issue = f"{source.label}: a log of NCCL Inspector holds communication only"
    notes = [*notes, HealthNote(issue, "its window is one step; computation cannot be judged", "info")]
    identity = Identity(
        rank=rank,
        source="content" if rank is not None else "order",
        world_size=world,
        host=timed[0].host,
        pid=timed[0].pid if timed[0].pid != NULL else None,
        backend="nccl",
    )
    return finish(source, columns, identity, Device("cuda"), notes, top={"records": "communication"})


def _with_context(records: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], int]:
    """Each record with its communicator and process, and the number of records for which no line states them."""
    batch, complete, orphans = _Batch(), [], 0
    for record in records:
        stats = record.get("dump_stats")
        kinds = [kind for kind in ("coll_perf", "p2p_perf") if kind in record]
        if isinstance(stats, dict):
            counts = {f"{kind}_perf": one_int(stats.get(f"{kind}_records")) for kind in ("coll", "p2p")}
            batch = _Batch(record.get("header"), record.get("metadata"), counts)
        elif "header" in record or not kinds:
            complete.append(record)
        elif batch.left.get(kinds[0], 0) > 0:
            batch.left[kinds[0]] -= 1
            complete.append({"header": batch.header, "metadata": batch.metadata, **record})
        else:
            orphans += 1
    return complete, orphans


def _losses(
    source: Source,
    records: list[dict[str, Any]],
    stated: list[tuple[dict[str, Any], dict[str, Any], str]],
    orphans: int,
) -> Iterator[HealthNote]:
    """Notes on calls that the plugin did not write, and on those without an owner."""
    if orphans:
        issue = f"{source.label}: {orphans} operations without the line that names their communicator"
        yield HealthNote(issue, "left out")
    dropped: dict[Any, int] = {}
    for record in records:
        stats, header = record.get("dump_stats"), record.get("header")
        if isinstance(stats, dict) and isinstance(header, dict):
            given = (one_int(stats.get(f"{kind}_dropped_total")) for kind in ("coll", "p2p"))
            dropped[as_text(header.get("id"))] = sum(max(0, count) for count in given)
    overwritten = sum(dropped.values())
    if overwritten:
        issue = f"{source.label}: {overwritten} operations were overwritten before they were written"
        yield HealthNote(issue, "not in the log: NCCL_INSPECTOR_DUMP_COLL_RING_SIZE keeps more of them")
    numbers: dict[tuple[str, str], set[int]] = defaultdict(set)
    for record, what, kind in stated:
        header, number = record.get("header"), one_int(what.get(f"{kind}_sn"))
        if kind == "coll" and isinstance(header, dict) and 0 <= number < _MOST_CALLS:
            numbers[as_text(header.get("id")) or "", as_text(what.get("coll")) or ""].add(number)
    called = sum(max(seen) - min(seen) + 1 for seen in numbers.values())
    logged = sum(map(len, numbers.values()))
    if logged < called - overwritten:
        issue = f"{source.label}: {logged} of {called} collectives are in the log"
        why = "v4.0 and RCCL keep the latest of each interval; NCCL_INSPECTOR_DUMP_MIN_SIZE_BYTES leaves small ones out"
        yield HealthNote(issue, f"a sample: the share of communication is unknown ({why})")


def _performances(records: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any], str]]:
    for record in records:
        for kind in ("coll", "p2p"):
            what = record.get(f"{kind}_perf")
            if isinstance(what, dict):
                yield record, what, kind


def _done(record: dict[str, Any], what: dict[str, Any], kind: str) -> _Done | None:
    header, metadata = (value if isinstance(value := record.get(key), dict) else {} for key in ("header", "metadata"))
    spans = [span for span in _kernel_spans(what) if span is not None]
    if not spans:
        return None
    start_us, end_us = min(start for start, _ in spans), max(end for _, end in spans)
    size = one_int(what.get(f"{kind}_msg_size_bytes"))
    return _Done(
        communicator=as_text(header.get("id")) or "",
        rank=one_rank(header.get("rank")),
        members=one_rank(header.get("n_ranks")),
        op=as_text(what.get(kind)) or "",
        number=number_in_communicator(as_text(what.get(kind)) or "", one_int(what.get(f"{kind}_sn"))),
        size_bytes=size if 0 <= size < _MOST_BYTES else NULL,
        peer=one_rank(what.get("p2p_peer")),
        start_ns=start_us * _US,
        dur_ns=(end_us - start_us) * _US,
        host=as_text(metadata.get("hostname")),
        pid=one_int(metadata.get("pid")),
    )


def _kernel_spans(what: dict[str, Any]) -> Iterator[tuple[int, int] | None]:
    """(start, end) of the kernel of every channel, microseconds: v4.0 lists them once, v4.1 among other events."""
    traced = what.get("event_trace_ts")
    listed = traced.get("kernel_events") if isinstance(traced, dict) else None
    for entry in listed if isinstance(listed, list) else []:
        yield _span(entry)
    events = what.get("events")
    for event in events if isinstance(events, list) else []:
        if isinstance(event, dict) and event.get("event_type") == "KernelCh":
            yield _span(event.get("event_trace_ts"))


def _span(times: Any) -> tuple[int, int] | None:
    if not isinstance(times, dict):
        return None
    start, end = one_int(times.get("kernel_start_ts")), one_int(times.get("kernel_stop_ts"))
    return (start, end) if 0 < start <= end < MAX_NS // _US else None


def _fill(columns: EventColumns, timed: list[_Done], world: int | None) -> None:
    start = np.array([done.start_ns for done in timed], np.int64)
    dur = np.array([done.dur_ns for done in timed], np.int64)
    columns.mark_steps("log", start.min(keepdims=True), (start + dur).max(keepdims=True))
    tracks = [("device", done.communicator) for done in timed]
    first = columns.append(Kind.KERNEL, [f"ncclDevKernel_{done.op}" for done in timed], tracks, start, dur)
    for stream, track in enumerate(dict.fromkeys(tracks)):
        columns.name_track(*track, f"communicator {track[1]}", 0, stream)
    for row, done in enumerate(timed, first):
        ranks = tuple(range(world)) if world and done.members == world else ()
        group = ProcessGroup(done.communicator, "", ranks, done.members, "nccl")
        peer = done.peer if done.peer is not None and ranks else NULL
        peers = (peer if done.op == "Recv" else NULL, peer if done.op == "Send" else NULL)
        columns.arguments.add_collective(row, done.op, group, done.number, done.bytes_in_and_out, peers=peers)


def _recognise(sample: Sample) -> bool:
    return sample.is_object and sample.has(_VERSION, _WORDS)


FORMAT = Format("nccl_inspector", "a log of NCCL Inspector", _recognise, read_nccl_inspector, is_run=False)
