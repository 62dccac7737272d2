"""Collectives of Ascend's library HCCL in a timeline: each once, without the tasks of which it is made."""

from __future__ import annotations

import re
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
_Names = Mapping[tuple[Any, Any], str]


def whole_collectives(
    spans: Sequence[TimelineEvent], processes: _Names, threads: _Names, devices: Collection[Any]
) -> list[TimelineEvent]:
    """The spans without what no device computes: waits of a stream, and the tasks of collectives that stand beside."""
    own = {pid for (pid, _), name in processes.items() if name == PROCESS}
    whole = {track for track, name in threads.items() if track[0] in own and _WHOLE.search(name)}
    with_tasks = {(s.pid, s.tid) for s in spans if s.pid in devices and _PEER.match(s.name)} if whole else set()
    parts = with_tasks | {(s.pid, s.tid) for s in spans if s.pid in own} if whole else set()
    kept = []
    for span in spans:
        if (span.pid, span.tid) in whole:
            kept.append(span if _NAME.match(span.name) else replace(span, name=f"hccl:{span.name}"))
        elif (span.pid, span.tid) not in parts and not (span.pid in devices and _ORDER.match(span.name)):
            kept.append(span)
    return kept


def named_collectives(spans: Sequence[TimelineEvent]) -> Iterator[tuple[int, str, ProcessGroup, int, int, str]]:
    """Position, operation, group, number, bytes and type of each collective whose name states them."""
    for at, span in enumerate(spans):
        if name := _NAME.match(span.name):
            dtype = _TYPES.get(str(span.args.get("data_type")), "")
            width, count = element_bytes(dtype), one_int(span.args.get("count"))
            size = width * count if width and count != NULL else NULL
            yield at, name["op"], ProcessGroup(name["group"], backend="hccl"), int(name["seq"]), size, dtype


def rank_beside(source: Source) -> int | None:
    """The rank in the name of the file that torch_npu writes into the folder of a run: profiler_info_3.json."""
    beside = [] if source.member else sorted(Path(source.path).parent.parent.glob("profiler_info_*.json"))
    return one_rank(beside[0].stem.removeprefix("profiler_info_")) if len(beside) == 1 else None
