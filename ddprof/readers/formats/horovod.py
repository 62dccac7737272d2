"""Horovod timelines, written by the coordinator: the time each rank became ready for each collective; one RankTrace per
rank.

A rank's collective lasts from its own mark to the end of the operation, so the last rank to be ready shows the
shortest one, as with NCCL kernels. Only the ranks that a negotiation names are known to have waited in it; the others
get no event there. Where it names none, as of all tensors that the ranks have cached (Horovod 0.19 and later, after its
first steps), all are in the operation from its begin.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import compress
from typing import Any

import numpy as np
from msgspec import Struct

from ddprof.errors import NoUsableInput
from ddprof.model import Device, HealthNote, Identity, Kind, ProcessGroup, RankTrace
from ddprof.readers.columns.event_columns import EventColumns
from ddprof.readers.columns.finish import finish
from ddprof.readers.format import Format, Sample
from ddprof.readers.json_text.load import TimelineEvent, load_events
from ddprof.readers.json_text.trace_event import as_text
from ddprof.readers.numbers import near_each_other, one_rank, without_holes
from ddprof.readers.source import Source
from ddprof.tables import Array
from ddprof.units import format_us

_MARKS = re.compile(rb'"NEGOTIATE_[A-Z]+|"CYCLE_START"')
_NEGOTIATE = re.compile(r"^NEGOTIATE_(\w+)$")
# Negotiations are the coordinator's: it writes them whatever the settings.
_NOTHING_WHOLE = (
    "a Horovod timeline in which no collective began and ended: it was cut off, or another rank than 0 wrote it"
)
LOST_SHARE = 0.05  # of the collectives, as of kernel launches (analyzers/facts/completeness.py)


@dataclass
class Negotiation:
    """One collective: operation, tensors, begin, end and begin of its execution (ns), and when each rank was ready."""

    op: str
    tensor: str
    start_ns: int
    end_ns: int
    ready_ns: dict[int, int] = field(default_factory=dict)
    run_ns: int | None = None

    def since_ns(self, rank: int) -> int | None:
        """Time from which a rank was in it; None where that is not known."""
        return self.ready_ns.get(rank) if self.ready_ns else self.run_ns


class _Timeline(Struct, frozen=True):
    """The collectives of a file by start, its ranks, and notes on its defects."""

    negotiations: tuple[Negotiation, ...]
    ranks: tuple[int, ...]
    notes: tuple[HealthNote, ...]


@lru_cache(maxsize=2)
def load(path: str, member: str | None, state: tuple[int, str]) -> _Timeline:
    """A timeline, cached because each of its ranks is read separately."""
    events, notes = load_events(path, member)
    names = {e.pid: as_text(e.args.get("name")) or "" for e in events if e.ph == "M" and e.name == "process_name"}
    marks = [e for e in events if e.ph in ("B", "E", "X")]
    near = near_each_other(np.array([e.ts_ns for e in marks], np.int64))
    by_tensor: dict[Any, list[TimelineEvent]] = defaultdict(list)
    for event in compress(marks, near.tolist()):
        by_tensor[event.pid].append(event)
    if not near.all():
        issue = f"{path}: {int((~near).sum())} events without a usable timestamp"
        notes = [*notes, HealthNote(issue, "left out, or their collectives")]
    negotiations: list[Negotiation] = []
    torn = 0
    for pid, its in by_tensor.items():
        whole, lost = _negotiations(its, names.get(pid, str(pid)))
        negotiations += whole
        torn += lost
    negotiations.sort(key=lambda n: n.start_ns)
    if torn:
        severity = "error" if torn > LOST_SHARE * (len(negotiations) + torn) else "warning"
        missing = f"{torn} begins, ends or marks of ranks are missing"
        issue = f"{path}: {missing} beside {len(negotiations)} whole collectives"
        notes = [*notes, HealthNote(issue, "the others are left out", severity)]
    named = np.array(sorted({rank for n in negotiations for rank in n.ready_ns}), np.int64)
    ranks = named[without_holes(named)].tolist()
    if len(ranks) < len(named):
        notes = [*notes, HealthNote(f"{path}: ranks that cannot be ({named.max()})", "left out")]
    return _Timeline(tuple(negotiations), tuple(ranks), tuple(notes))


def _negotiations(events: list[TimelineEvent], tensor: str) -> tuple[list[Negotiation], int]:
    """The collectives of one tensor, each a negotiation followed (if recorded) by its execution; and the number of
    events whose collective is missing. The last may lack its end where the timeline ends.
    """
    negotiations: list[Negotiation] = []
    depth = lost = 0
    is_last_of_them = False  # what comes is of the last one, not of one whose begin is missing
    for event in events:
        begun = _NEGOTIATE.match(event.name)
        if event.ph == "B":
            if begun:
                lost += depth > 0
                if depth > 0 and is_last_of_them:
                    negotiations.pop()
                negotiations.append(Negotiation(begun[1].lower(), tensor, event.ts_ns, event.ts_ns))
                depth, is_last_of_them = 0, True
            elif is_last_of_them and depth == 0 and negotiations[-1].run_ns is None:
                negotiations[-1].run_ns = event.ts_ns
            depth += 1
            continue
        is_rank = event.ph == "X" and event.name.isdecimal() and one_rank(event.name) is not None
        if event.ph == "E" or is_rank:
            lost += depth == 0
            is_last_of_them &= depth > 0
        if is_rank and is_last_of_them:
            negotiations[-1].ready_ns[int(event.name)] = event.ts_ns
        elif event.ph == "E":
            depth = max(0, depth - 1)
            if is_last_of_them and depth == 0:  # of the negotiation, then of the execution as a whole
                negotiations[-1].end_ns = max(negotiations[-1].end_ns, event.ts_ns)
    is_cut_off = depth > 0 and is_last_of_them
    return negotiations[: len(negotiations) - is_cut_off], lost


def rank_parts(source: Source) -> list[str]:
    """The ranks that the timeline names ("rank 3"). Raises NoUsableInput where it names none."""
    ranks = load(source.path, source.member, source.state).ranks
    if not ranks:
        raise NoUsableInput(f"{source.label}: {_NOTHING_WHOLE}")
    return [f"rank {rank}" for rank in ranks]


def read_horovod(source: Source) -> RankTrace:
    """One rank of a timeline; `source.part` is "rank N", the first one where it is None."""
    timeline = load(source.path, source.member, source.state)
    negotiations, ranks = timeline.negotiations, timeline.ranks
    if not ranks:
        raise NoUsableInput(f"{source.label}: {_NOTHING_WHOLE}")
    rank = int(source.part.split()[-1]) if source.part else ranks[0]
    world_size = max(ranks) + 1
    columns = EventColumns()
    marks = np.array([*_step_starts(negotiations), max(n.end_ns for n in negotiations)], np.int64)
    columns.mark_steps("timeline", marks[:-1], marks[1:])  # the same on every rank, each up to the next
    of_rank = [(seq, n) for seq, n in enumerate(negotiations) if n.since_ns(rank) is not None]
    start = np.array([n.since_ns(rank) for _, n in of_rank], np.int64)
    end = np.array([n.end_ns for _, n in of_rank], np.int64)
    lanes = _lanes(start, end)
    tracks = [("device", f"collectives {lane}") for lane in lanes]
    names = [f"horovod::{n.op}" for _, n in of_rank]
    first = columns.append(Kind.KERNEL, names, tracks, start, end - start)
    for lane in sorted(set(lanes)):
        columns.name_track("device", f"collectives {lane}", f"collectives {lane}", 0, lane)
    group = ProcessGroup("world", "default_pg", tuple(range(world_size)), world_size, "horovod")
    for row, (seq, negotiation) in enumerate(of_rank, first):
        columns.arguments.add_collective(row, negotiation.op, group, seq)
    identity = Identity(rank, "content", world_size, host="coordinator", backend="horovod")
    return finish(
        source,
        columns,
        identity,
        Device("unknown"),  # of the coordinator's clock and its tensors the timeline tells, not of where they lie
        _notes(source, timeline, rank),
        top={"records": "communication"},
    )


def _lanes(start_ns: Array, end_ns: Array) -> list[int]:
    """The first free lane of each collective at its start, as tensors are negotiated side by side."""
    lanes = np.zeros(len(start_ns), np.int64)
    free_ns: list[int] = []
    for row in np.argsort(start_ns, kind="stable").tolist():
        free = [lane for lane, at in enumerate(free_ns) if at <= start_ns[row]]
        lane = free[0] if free else len(free_ns)
        free_ns[lane : lane + 1] = [int(end_ns[row])]
        lanes[row] = lane
    return [int(lane) for lane in lanes]


def _step_starts(negotiations: tuple[Negotiation, ...]) -> list[int]:
    """Start of each step, ns: every step reduces the same tensors once each.

    The k-th step begins with the k-th negotiation of any tensor that is negotiated most often. Anything before is
    one-off (rank 0 broadcasts parameters while the others start) and in no step. Where no tensor recurs, the whole
    window is one step.
    """
    by_tensor: dict[tuple[str, str], list[int]] = defaultdict(list)
    for negotiation in negotiations:
        by_tensor[negotiation.op, negotiation.tensor].append(negotiation.start_ns)
    most = max(len(starts) for starts in by_tensor.values())
    if most < 2:
        return [negotiations[0].start_ns]
    rhythm = [starts for starts in by_tensor.values() if len(starts) == most]
    return [int(start) for start in np.unique(np.min(rhythm, axis=0))]


def _notes(source: Source, timeline: _Timeline, rank: int) -> list[HealthNote]:
    notes: list[HealthNote] = []
    notes += [note for note in timeline.notes if rank == timeline.ranks[0] or note.severity == "error"]
    all_ = len(timeline.negotiations)
    named = [n.ready_ns for n in timeline.negotiations if n.ready_ns]
    if rank == timeline.ranks[0]:  # once per file
        issue = f"{source.path}: a Horovod timeline records no compute"
        notes.append(HealthNote(issue, "only waiting for late ranks can be judged", "info"))
        notes += _once_note(source, timeline.negotiations)
        if len(named) < all_:
            issue = f"{source.path}: {all_ - len(named)} of {all_} operations name no rank, as cached ones do"
            notes.append(HealthNote(issue, "who was late there is unknown", "info"))
    missing = sum(rank not in ready_ns for ready_ns in named)
    if missing:
        unknown = f"when rank {rank} was ready for {missing} of {all_} operations"
        issue = f"{source.label}: the timeline does not say {unknown}"
        notes.append(HealthNote(issue, "its waiting there is unknown", "info", rank))
    return notes


def _once_note(source: Source, negotiations: tuple[Negotiation, ...]) -> list[HealthNote]:
    """Note on operations before the first step."""
    first_ns = _step_starts(negotiations)[0]
    once = [n for n in negotiations if n.start_ns < first_ns]
    if not once:
        return []
    took = format_us((max(n.end_ns for n in once) - once[0].start_ns) / 1e3)
    kinds = " and ".join(sorted({n.op for n in once}))
    issue = f"{source.path}: before the first step {len(once)} operations ({kinds}) took {took}"
    return [HealthNote(issue, "not part of a step", "info")]


def _recognise(sample: Sample) -> bool:
    return sample.may_hold_events and sample.has(_MARKS, (b'"NEGOTIATE_', b'"CYCLE_START"'))


FORMAT = Format("horovod", "a Horovod timeline", _recognise, read_horovod, rank_parts)
