"""Logs of NCCL's profiler plugin (JSON lines).

Collectives with their kernels and sequence numbers; one RankTrace per rank.
"""

from __future__ import annotations

import re
from collections import defaultdict
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np

from ddprof.errors import NoUsableInput
from ddprof.model import Device, HealthNote, Identity, Kind, ProcessGroup, RankTrace
from ddprof.readers.columns.event_columns import EventColumns
from ddprof.readers.columns.finish import finish
from ddprof.readers.columns.numbers import one_int, to_ns
from ddprof.readers.format import Format, Sample
from ddprof.readers.json_text.load import load_events
from ddprof.readers.source import Source
from ddprof.tables import NULL

_FIRST_RECORD = re.compile(
    rb'"(?:recordType|type)"\s*:\s*"(?:ProfilerLifecycle|event|state)".{0,400}"(?:commId|eventAddr|gpuUuid)"', re.S
)
_MANGLED = re.compile(r"^_Z(\d+)")
_ELEMENT_BYTES = {"8": 1, "16": 2, "32": 4, "64": 8}


@lru_cache(maxsize=2)
def load(path: str, member: str | None, mtime_ns: int) -> dict[int, list[dict[str, Any]]]:
    """The records of each rank, cached because each rank is read on its own.

    Kernels state no rank: they go to the rank whose launch has the same correlation (their GPU's name may be that of
    another).
    """
    records = [r for r in load_events(path, member) if isinstance(r, dict) and _is_timed(r)]
    rank_of = {r["extCorrId"]: r["rank"] for r in records if "extCorrId" in r and isinstance(r.get("rank"), int)}
    by_rank: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for record in records:
        rank = record.get("rank", rank_of.get(record.get("extCorrId")))
        if isinstance(rank, int):
            by_rank[rank].append(record)
    return dict(by_rank)


def _is_timed(record: dict[str, Any]) -> bool:
    """True for records with a start, a stop and sound details: all others are state changes, or damaged."""
    times = [record.get("start"), record.get("stop")]
    details = record.setdefault("details", {})
    return isinstance(details, dict) and all(
        isinstance(t, dict) and isinstance(t.get("ts"), int | float | Decimal) for t in times
    )


def rank_parts(source: Source) -> list[str]:
    """The ranks in a log ("rank 3")."""
    ranks = sorted(load(source.path, source.member, source.mtime_ns))
    if not ranks:
        raise NoUsableInput(f"{source.label}: an NCCL profiler log without ranks")
    return [f"rank {rank}" for rank in ranks]


def read_nccl_profiler(source: Source) -> RankTrace:
    """One rank of a log; `source.part` is "rank N", the first one where it is None."""
    by_rank = load(source.path, source.member, source.mtime_ns)
    part = source.part or rank_parts(source)[0]
    rank = int(part.split()[-1])
    records = by_rank[rank]
    columns = EventColumns()
    kernels = sorted((r for r in records if r.get("type") == "KERNEL"), key=lambda r: _start(r))
    calls = sorted((r for r in records if r.get("type") == "ncclProfileColl"), key=lambda r: _start(r))
    device = one_int(kernels[0].get("deviceId")) if kernels else NULL
    timed = "KERNEL" if kernels else "ncclProfileColl"
    _window(columns, [r for theirs in by_rank.values() for r in theirs if r.get("type") == timed])
    _kernels(columns, kernels, calls, device, _world_size(records))
    identity = Identity(
        rank=rank,
        source="content",
        world_size=_world_size(records),
        pid=next((p for r in records if (p := one_int(r["start"].get("pid"))) != NULL), None),
        backend="nccl",
        local_device=device if device != NULL else None,
    )
    notes = []
    if rank == min(by_rank):  # once per file
        issue = f"{source.path}: an NCCL profiler log holds communication only"
        notes.append(HealthNote(issue, "its window is one step; computation cannot be judged", "info"))
    return finish(source, columns, identity, Device("cuda"), notes, top={"records": "communication"})


def _window(columns: EventColumns, kernels: list[dict[str, Any]]) -> None:
    """One step from the first to the last kernel: what the program did outside of communication is unknown."""
    start, dur = _times(kernels)
    if len(start):
        mark = ("host", "log")
        first, last = start.min(), (start + dur).max()
        columns.append(Kind.ANNOTATION, ["ProfilerStep#0"], [mark], np.array([first]), np.array([last - first]))
        columns.name_track(*mark, "log")


def _call_name(record: dict[str, Any]) -> str:
    function = record["details"].get("func")
    return f"nccl{function}" if function else str(record["type"]).removeprefix("ncclProfile")


def _kernels(
    columns: EventColumns, kernels: list[dict[str, Any]], calls: list[dict[str, Any]], device: int, world: int | None
) -> None:
    """Kernels with the arguments of the collectives they carry out, in order.

    Without kernels, the collectives themselves.
    """
    timed = kernels or calls
    start, dur = _times(timed)
    names = [_demangled(str(r.get("name") or _call_name(r))) for r in timed]
    track = ("device", "nccl")
    ids = np.array([one_int(r.get("extCorrId")) for r in timed], np.int64)
    first = columns.append(Kind.KERNEL, names, [track] * len(timed), start, dur, ids)
    columns.name_track(*track, "nccl", device if device != NULL else 0, 0)
    given, strings = columns.arguments, columns.strings
    if len(kernels) not in (0, len(calls)):
        return  # kernels cannot be paired with collectives by order
    for at, call in enumerate(calls):
        details = call["details"]
        dtype = str(details.get("dtype", ""))
        size = _bytes(details.get("count"), dtype)
        ranks = tuple(range(world)) if world else ()
        group = given.groups.add(ProcessGroup(str(call.get("commId", "")), "", ranks, world, "nccl"))
        op, seq = strings[str(details.get("func", ""))], one_int(details.get("seq"))
        row = (first + at, op, group, seq, size, NULL, strings[dtype.removeprefix("nccl")], world or NULL, NULL, NULL)
        given.collectives.append(row)


def _bytes(count: Any, dtype: str) -> int:
    digits = re.search(r"(\d+)", dtype)
    width = _ELEMENT_BYTES.get(digits[1]) if digits else None
    return one_int(count) * width if width and one_int(count) >= 0 else NULL


def _times(records: list[dict[str, Any]]) -> tuple[Any, Any]:
    start = to_ns([r["start"].get("ts") for r in records])
    return start, np.maximum(to_ns([r["stop"].get("ts") for r in records]) - start, 0)


def _start(record: dict[str, Any]) -> float:
    return float(record["start"]["ts"])


def _world_size(records: list[dict[str, Any]]) -> int | None:
    sizes = [one_int(r["details"].get("nranks")) for r in records]
    largest = max(sizes, default=NULL)
    return largest if largest > 0 else None


def _demangled(name: str) -> str:
    found = _MANGLED.match(name)
    return name[found.end() : found.end() + int(found[1])] if found else name


def _recognise(sample: Sample) -> bool:
    text = sample.text
    return sample.is_object and _FIRST_RECORD.match(text, text.find(b'"')) is not None


FORMAT = Format("nccl_profiler", "an NCCL profiler log", _recognise, read_nccl_profiler, rank_parts)
