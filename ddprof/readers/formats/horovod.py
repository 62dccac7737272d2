"""Horovod timelines: when each rank was ready for each collective, from the coordinator; one RankTrace per rank.

A rank's collective lasts from its own mark to the end of the operation, so the last rank to be ready shows the
shortest one, as with NCCL kernels. Only the ranks that a negotiation names are known to have waited in it; the others
get no event there.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np

from ddprof.errors import NoUsableInput
from ddprof.model import Device, HealthNote, Identity, Kind, ProcessGroup, RankTrace
from ddprof.readers.columns.event_columns import EventColumns
from ddprof.readers.columns.finish import finish
from ddprof.readers.columns.numbers import to_ns
from ddprof.readers.format import Format, Sample
from ddprof.readers.json_text.load import argument, load_events
from ddprof.readers.source import Source
from ddprof.tables import NULL

_MARKS = re.compile(rb'"NEGOTIATE_[A-Z]+|"CYCLE_START"')
_NEGOTIATE = re.compile(r"^NEGOTIATE_(\w+)$")


@dataclass
class Negotiation:
    """One collective: what, of which tensor, when it began and ended (us), and when each rank was ready."""

    op: str
    tensor: str
    start_us: Any
    end_us: Any
    ready_us: dict[int, Any] = field(default_factory=dict)


@lru_cache(maxsize=2)
def load(path: str, member: str | None, mtime_ns: int) -> tuple[Negotiation, ...]:
    """The collectives of a timeline in order of their start, cached because each rank is read on its own."""
    events = [e for e in load_events(path, member) if isinstance(e, dict)]
    names = {
        e.get("pid"): str(argument(e, "name") or "")
        for e in events
        if e.get("ph") == "M" and e.get("name") == "process_name"
    }
    by_tensor: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        if event.get("ph") in ("B", "E", "X") and isinstance(event.get("ts"), int | float | Decimal):
            by_tensor[event.get("pid")].append(event)
    found = [n for pid, its in by_tensor.items() for n in _negotiations(its, names.get(pid, str(pid)))]
    return tuple(sorted(found, key=lambda n: n.start_us))


def _negotiations(events: list[dict[str, Any]], tensor: str) -> list[Negotiation]:
    """The collectives of one tensor: each a negotiation, then (where the timeline says so) its execution."""
    found: list[Negotiation] = []
    depth = 0
    for event in events:
        begun = _NEGOTIATE.match(str(event.get("name", "")))
        if event["ph"] == "B":
            if begun:
                found.append(Negotiation(begun[1].lower(), tensor, event["ts"], event["ts"]))
                depth = 0
            depth += 1
        elif event["ph"] == "E":
            depth -= 1
            if found and depth == 0:  # of the negotiation, then of the execution as a whole
                found[-1].end_us = max(found[-1].end_us, event["ts"])
        elif found and str(event.get("name", "")).isdecimal():
            found[-1].ready_us[int(event["name"])] = event["ts"]
    return found


def rank_parts(source: Source) -> list[str]:
    """The ranks that the timeline names ("rank 3"). Raises NoUsableInput where it names none."""
    ranks = _ranks(source)
    if not ranks:
        raise NoUsableInput(
            f"{source.label}: a Horovod timeline without negotiations: set HOROVOD_TIMELINE_MARK_CYCLES=1"
        )
    return [f"rank {rank}" for rank in ranks]


def _ranks(source: Source) -> list[int]:
    loaded = load(source.path, source.member, source.mtime_ns)
    return sorted({rank for negotiation in loaded for rank in negotiation.ready_us})


def read_horovod(source: Source) -> RankTrace:
    """One rank of a timeline; `source.part` is "rank N", the first one where it is None."""
    negotiations = load(source.path, source.member, source.mtime_ns)
    ranks = _ranks(source)
    if not ranks:
        raise NoUsableInput(f"{source.label}: a Horovod timeline without negotiations")
    rank = int(source.part.split()[-1]) if source.part else ranks[0]
    world_size = max(ranks) + 1
    columns = EventColumns()
    _window(columns, negotiations)
    mine = [(seq, n) for seq, n in enumerate(negotiations) if rank in n.ready_us]
    start = to_ns([n.ready_us[rank] for _, n in mine])
    end = to_ns([n.end_us for _, n in mine])
    track = ("device", "collectives")
    names = [f"horovod::{n.op}" for _, n in mine]
    first = columns.append(Kind.KERNEL, names, [track] * len(mine), start, np.maximum(end - start, 0))
    columns.name_track(*track, "collectives", 0, 0)
    given, strings = columns.arguments, columns.strings
    group = given.groups.add(ProcessGroup("world", "default_pg", tuple(range(world_size)), world_size, "horovod"))
    for at, (seq, negotiation) in enumerate(mine):
        row = (first + at, strings[negotiation.op], group, seq, NULL, NULL, strings[""], world_size, NULL, NULL)
        given.collectives.append(row)
    identity = Identity(rank, "content", world_size, host="coordinator", backend="horovod")
    return finish(
        source,
        columns,
        identity,
        Device("cuda"),
        _notes(source, negotiations, rank, len(mine)),
        top={"records": "communication"},
    )


def _window(columns: EventColumns, negotiations: tuple[Negotiation, ...]) -> None:
    """The timeline has no steps: its whole window is one, the same on every rank."""
    start, end = to_ns([min(n.start_us for n in negotiations), max(n.end_us for n in negotiations)])
    mark = ("host", "timeline")
    columns.append(Kind.ANNOTATION, ["ProfilerStep#0"], [mark], np.array([start]), np.array([end - start]))
    columns.name_track(*mark, "timeline")


def _notes(source: Source, negotiations: tuple[Negotiation, ...], rank: int, named: int) -> list[HealthNote]:
    notes = []
    if rank == _ranks(source)[0]:  # once per file
        issue = f"{source.path}: a Horovod timeline holds no computation and no steps"
        notes.append(HealthNote(issue, "its window is one step; only waiting for late ranks can be judged", "info"))
    missing = len(negotiations) - named
    if missing:
        issue = (
            f"{source.label}: the timeline does not say when rank {rank} was ready in {missing} of {len(negotiations)}"
        )
        notes.append(
            HealthNote(issue, "it is neither the first nor the last there; its waiting is unknown", "info", rank)
        )
    return notes


def _recognise(sample: Sample) -> bool:
    return sample.may_hold_events and sample.has(_MARKS)


FORMAT = Format("horovod", "a Horovod timeline", _recognise, read_horovod, rank_parts)
