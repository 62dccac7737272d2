"""Collectives of Ascend's library HCCL in a timeline: each once, without the tasks of which it is made."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ddprof.model import ProcessGroup, element_bytes
from ddprof.readers.json_text.load import TimelineEvent
from ddprof.readers.numbers import one_int, one_rank
from ddprof.readers.source import Source
from ddprof.tables import NULL

PROCESS = "HCCL"
_WHOLE = re.compile(
    r"Communication(?: Kernel)?$"
)  # "Group 0 Communication" of torch_npu, "Communication Kernel" of msprof
_PEER = re.compile(r"notify[ _]wait$", re.IGNORECASE)  # only a stream of HCCL waits for another device
_ORDER = re.compile(r"(?:event|notify)[ _](?:wait|record)$|profiling_(?:en|dis)able$", re.IGNORECASE)
# Operation, group, and its number within the recording: hcom_allReduce__868_0_1.
_NAME = re.compile(r"hcom_(?P<op>[A-Za-z]+)__(?P<group>\w+)_(?P<seq>\d+)_\d+$")
_TYPES = {"FP32": "float", "FP16": "half", "BFP16": "bfloat16", "INT32": "int", "INT64": "long"}
_SIZE = "size of its group"
_Track = tuple[Any, Any]
_Names = Mapping[_Track, str]


def whole_collectives(
    spans: Sequence[TimelineEvent], processes: _Names, threads: _Names, devices: Collection[Any]
) -> list[TimelineEvent]:
    """The spans without what no device computes: waits of a stream, and the tasks of collectives that stand beside.

    A collective has its group's size among its arguments, where its tasks show that.
    """
    own = {pid for (pid, _), name in processes.items() if name == PROCESS}
    whole = {track for track, name in threads.items() if track[0] in own and _WHOLE.search(name)}
    with_tasks = {(s.pid, s.tid) for s in spans if s.pid in devices and _PEER.match(s.name)} if whole else set()
    parts = with_tasks | {(s.pid, s.tid) for s in spans if s.pid in own} if whole else set()
    sizes = _sizes([span for span in spans if span.pid in own], whole)
    kept = []
    for span in spans:
        track = span.pid, span.tid
        if track in whole:
            name = span.name if _NAME.match(span.name) else f"hccl:{span.name}"
            kept.append(replace(span, name=name, args={**span.args, _SIZE: sizes.get(track)}))
        elif track not in parts and not (span.pid in devices and _ORDER.match(span.name)):
            kept.append(span)
    return kept


def _sizes(spans: Sequence[TimelineEvent], whole: Collection[_Track]) -> dict[_Track, int]:
    """Size of the group of each line of collectives, by the peers in the tasks on the lines below it.

    Only in a mesh within a host each rank has a task with each other one.
    """
    lines = sorted((track for track in whole if isinstance(track[1], int)), key=lambda track: track[1])
    starts, peers, is_mesh = [tid for _, tid in lines], defaultdict[_Track, set[int]](set), dict[_Track, bool]()
    for span in spans:
        if not isinstance(span.tid, int) or not (before := bisect_right(starts, span.tid)):
            continue
        line = lines[before - 1]
        if (span.pid, span.tid) in whole:
            is_mesh[line] = is_mesh.get(line, True) and str(span.args.get("alg_type")).startswith("MESH")
        elif span.args.get("transport type") == "RDMA":
            is_mesh[line] = False
        else:
            stated = (one_rank(span.args.get(side)) for side in ("src rank", "dst rank"))
            peers[line] |= {rank for rank in stated if rank is not None}
    return {line: len(of) for line, of in peers.items() if is_mesh.get(line) and of == set(range(len(of)))}


def named_collectives(spans: Sequence[TimelineEvent]) -> Iterator[tuple[int, str, ProcessGroup, int, int, str]]:
    """Position, operation, group, number, bytes and type of each collective whose name states them."""
    for at, span in enumerate(spans):
        if name := _NAME.match(span.name):
            dtype = _TYPES.get(str(span.args.get("data_type")), "")
            width, count = element_bytes(dtype), one_int(span.args.get("count"))
            size = width * count if width and count != NULL else NULL
            group = ProcessGroup(name["group"], size=span.args.get(_SIZE), backend="hccl")
            yield at, name["op"], group, int(name["seq"]), size, dtype


def rank_beside(source: Source) -> int | None:
    """The rank in the name of the file that torch_npu writes into the folder of a run: profiler_info_3.json."""
    beside = [] if source.member else sorted(Path(source.path).parent.parent.glob("profiler_info_*.json"))
    return one_rank(beside[0].stem.removeprefix("profiler_info_")) if len(beside) == 1 else None
