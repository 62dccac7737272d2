"""Details of the timeline on request: a slice in words, the waits."""

from __future__ import annotations

from typing import Any

import numpy as np

from ddprof.analyzers.facts.model import NO_STRING, RankFacts
from ddprof.analyzers.facts.names import COLLECTIVE_OPS
from ddprof.analyzers.job.model import JobFacts
from ddprof.dashboard.timeline.categories import CATEGORIES, LOOKS
from ddprof.dashboard.timeline.lanes import Lane, Timeline
from ddprof.errors import UsageError
from ddprof.report.phrases import clean
from ddprof.tables import NULL, Table
from ddprof.units import format_bytes, format_us

MAX_WAITS = 60  # arrows in one view


def slice_details(timeline: Timeline, job: JobFacts, row: int) -> dict[str, Any]:
    """One slice: name, times, lane, facts, members of a communication. Raises UsageError for an unknown one."""
    lane, shown = shown_slice(timeline, row)
    facts, ref = job.ranks[lane.position], int(timeline.index.ref[row])
    comm = ref if lane.kind == "comm" else int(facts.device_ops["comm"][ref]) if lane.kind == "stream" else NULL
    sentences = [*_device_words(lane, facts, ref), *_comm_words(job, lane.position, comm)]
    return shown | {"facts": sentences, "members": _members(job, lane.position, comm)}


def shown_slice(timeline: Timeline, row: int) -> tuple[Lane, dict[str, Any]]:
    """The lane of a slice, and the slice's drawn properties. Raises UsageError for an unknown slice."""
    index = timeline.index
    if not 0 <= row < len(index):
        raise UsageError("no such slice")
    at = np.array([row])
    group = int(index.group(at)[0])
    lane = timeline.lanes[group // index.categories]
    return lane, {
        "name": timeline.names[int(index.name[row])],
        "category": LOOKS[CATEGORIES[group % index.categories]].words,
        "rank": lane.rank,
        "lane": lane.label,
        "start_us": int(index.start_ns(at)[0]) / 1e3,
        "dur_us": int(index.dur_ns(at)[0]) / 1e3,
    }


def _device_words(lane: Lane, facts: RankFacts, ref: int) -> list[str]:
    if lane.kind != "stream":
        return []
    ops, words = facts.device_ops, []
    for column, noun in (("operator", "operator"), ("shape", "shapes")):
        code = int(ops[column][ref])
        if code != NO_STRING:
            words.append(f"{noun}: {clean(facts.strings[code])[:160]}")
    launch = int(ops["launch_ns"][ref])
    if launch != NULL:
        words.append(f"launched {format_us((int(ops['start_ns'][ref]) - launch) / 1e3)} before it started")
    if int(ops["size_bytes"][ref]) != NULL:
        words.append(f"copies {format_bytes(int(ops['size_bytes'][ref]))}")
    return words


def _comm_words(job: JobFacts, position: int, comm: int) -> list[str]:
    if comm == NULL:
        return []
    facts = job.ranks[position]
    op, size = COLLECTIVE_OPS[int(facts.comms["op"][comm])], int(facts.comms["size_bytes"][comm])
    words = [f"{op}{'' if size == NULL else f' of {format_bytes(size)}'}"]
    instance = _instance(job, position, comm)
    if instance is None:
        return [*words, "no partner in the traces: waiting and moving data cannot be told apart"]
    transfer = int(job.instances["transfer_ns"][instance]) / 1e3
    late = int(job.instances["late"][instance])
    words.append(f"moves data for {format_us(transfer)}; the rest is waiting")
    return [*words, f"rank {job.rank_ids[late]} came last"] if late != NULL else words


def _instance(job: JobFacts, position: int, comm: int) -> int | None:
    members = np.flatnonzero((job.members["rank"] == position) & (job.members["comm"] == comm))
    return int(job.members["instance"][members[0]]) if len(members) else None


def _members(job: JobFacts, position: int, comm: int) -> list[dict[str, Any]]:
    """Every rank's part in the collective, aligned: own arrival, last arrival, end."""
    instance = None if comm == NULL else _instance(job, position, comm)
    if instance is None:
        return []
    late, shown = int(job.instances["late"][instance]), []
    for row in np.flatnonzero(job.members["instance"] == instance).tolist():
        at = int(job.members["rank"][row])
        shift_ns = job.shift_ns(at)
        times = {f"{c}_us": (int(job.members[f"{c}_ns"][row]) - shift_ns) / 1e3 for c in ("start", "ready", "end")}
        shown.append({"rank": job.rank_ids[at], **times, "late": late == at})
    return shown


def largest_waits(job: JobFacts, lo_ns: int, hi_ns: int) -> list[dict[str, Any]]:
    """The longest waits of one rank for another in a window, each from the late rank's arrival to the waiting rank."""
    members = job.members
    shift = job.shifts_ns[members["rank"]]
    start, ready = members["start_ns"] - shift, members["ready_ns"] - shift
    late = job.instances["late"][members["instance"]]
    usable = (late != NULL) & (late != members["rank"]) & (ready > start) & (ready > lo_ns) & (start < hi_ns)
    rows = np.flatnonzero(usable)
    rows = rows[np.argsort((start - ready)[rows], kind="stable")][:MAX_WAITS]
    return [
        {
            "victim": job.rank_ids[int(members["rank"][r])],
            "culprit": job.rank_ids[int(late[r])],
            "start_us": float(start[r]) / 1e3,
            "ready_us": float(ready[r]) / 1e3,
        }
        for r in rows.tolist()
    ]


def path_runs(job: JobFacts, path: Table) -> list[list[float]]:
    """The critical path as [rank, start, end] in us, one entry for each stretch on one rank, in time order."""
    if not len(path):
        return []
    first = np.flatnonzero(np.concatenate(([True], path["rank"][1:] != path["rank"][:-1])))
    last = np.append(first[1:], len(path)) - 1
    start, end = path["start_ns"][first] - job.origin_ns, path["end_ns"][last] - job.origin_ns
    ranks = (job.rank_ids[p] for p in path["rank"][first].tolist())
    return [[rank, lo / 1e3, hi / 1e3] for rank, lo, hi in zip(ranks, start.tolist(), end.tolist(), strict=True)]
