"""A run as one Chrome trace that the Perfetto UI opens: all ranks on one clock, findings as tracks, waits as arrows.

Rank r gets process id r + 1 (0 is Perfetto's idle task); thread ids are rows of the rank's tracks. Ranks are written
one at a time, so memory is bounded by one rank. Format: "Trace Event Format", Google.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ddprof._version import __version__
from ddprof.model import Kind
from ddprof.report import phrases
from ddprof.report.export.pftrace import FINDINGS_PROCESS, Arrow, RankSlices, rank_label, track_label, write_packets
from ddprof.report.model import Report

_STEPS_THREAD = 0
_BLOCK = 20_000  # events per write: text of a block is a few MB
_CATEGORIES = {kind: kind.name.lower() for kind in Kind}


def write_perfetto(path: Path, report: Report, ranks: Iterable[RankSlices], arrows: Iterable[Arrow]) -> int:
    """Write the trace and return its number of slices: gzip for .gz, Perfetto's format for .pftrace. Raises OSError."""
    count = 0
    if path.name.removesuffix(".gz").endswith(".pftrace"):
        with gzip.open(path, "wb", compresslevel=4) if path.name.endswith(".gz") else path.open("wb") as packets:
            return write_packets(packets, report, ranks, arrows)
    with gzip.open(path, "wt", 4, "utf-8") if path.name.endswith(".gz") else path.open("w", encoding="utf-8") as out:
        other = {"ddprof": __version__, "clock": report.clock.method, "run": report.run.name}
        out.write(f'{{"displayTimeUnit":"ms","otherData":{json.dumps(other)},"traceEvents":[\n')
        for item in ranks:
            for entry in (*_rank_metadata(report, item), *_step_slices(item)):
                out.write(json.dumps(entry) + ",\n")
            count += len(item.trace.events)
            for block in _event_blocks(item):
                out.write(block)
        for number, arrow in enumerate(arrows, 1):
            out.write("".join(json.dumps(entry) + ",\n" for entry in _flow(number, arrow)))
        for entry in _finding_slices(report):
            out.write(json.dumps(entry) + ",\n")
        closing = _meta("process_name", FINDINGS_PROCESS, 0, {"name": "ddprof findings"})
        out.write(json.dumps(closing) + "\n]}\n")
    return count


def _rank_metadata(report: Report, item: RankSlices) -> Iterator[dict[str, Any]]:
    process = item.rank + 1
    yield _meta("process_name", process, 0, {"name": rank_label(report, item.rank)})
    yield _meta("process_sort_index", process, 0, {"sort_index": item.rank})
    yield _meta("thread_name", process, _STEPS_THREAD, {"name": "steps"})
    yield _meta("thread_sort_index", process, _STEPS_THREAD, {"sort_index": -1})
    for row, track in enumerate(item.trace.tracks.rows()):
        on_device = track["stream"] is not None
        yield _meta("thread_name", process, row + 1, {"name": track_label(track)})
        yield _meta("thread_sort_index", process, row + 1, {"sort_index": row + (0 if on_device else 1000)})


def _step_slices(item: RankSlices) -> Iterator[dict[str, Any]]:
    for step in item.steps.rows():
        start_ns, length_ns = step["start_ns"] - item.shift_ns, step["end_ns"] - step["start_ns"]
        yield _slice(item.rank + 1, _STEPS_THREAD, start_ns, length_ns, f"step {step['index']}", {})


def _event_blocks(item: RankSlices) -> Iterator[str]:
    """JSON text of the events, block by block; a Python loop, since the format is text."""
    names = [json.dumps(text) for text in item.trace.strings]
    kinds = [f'"{_CATEGORIES[kind]}"' for kind in Kind]
    process = item.rank + 1
    events = item.trace.events
    for first in range(0, len(events), _BLOCK):
        rows = slice(first, first + _BLOCK)
        starts_us = ((events["ts_ns"][rows] - item.shift_ns) / 1e3).tolist()
        lengths_us = (events["dur_ns"][rows] / 1e3).tolist()
        tracks = (events["track"][rows].astype(np.int64) + 1).tolist()
        kind, name = events["kind"][rows].tolist(), events["name"][rows].tolist()
        columns = zip(starts_us, lengths_us, tracks, kind, name, strict=True)
        yield "".join(
            f'{{"ph":"X","pid":{process},"tid":{track},"ts":{start:.3f},"dur":{length:.3f},'
            f'"cat":{kinds[kind]},"name":{names[name]}}},\n'
            for start, length, track, kind, name in columns
        )


def _flow(number: int, arrow: Arrow) -> tuple[dict[str, Any], dict[str, Any]]:
    common = {"cat": "wait", "name": "waits for", "id": number}
    start = {"ph": "s", "pid": arrow.from_rank + 1, "tid": arrow.from_track + 1, "ts": arrow.from_ns / 1e3}
    # Two clocks agree to within their error only, and Perfetto drops an arrow that ends before it starts.
    to_ns = max(arrow.from_ns, arrow.to_ns)
    end = {"ph": "f", "bp": "e", "pid": arrow.to_rank + 1, "tid": arrow.to_track + 1, "ts": to_ns / 1e3}
    return {**start, **common}, {**end, **common}


def _finding_slices(report: Report) -> Iterator[dict[str, Any]]:
    for thread, finding in enumerate(report.ranked_findings(), 1):
        yield _meta("thread_name", FINDINGS_PROCESS, thread, {"name": f"{finding.id} ({phrases.who_words(finding)})"})
        yield _meta("thread_sort_index", FINDINGS_PROCESS, thread, {"sort_index": thread})
        facts = {"summary": finding.summary, "gain": phrases.gain_words(report, finding)}
        for evidence in finding.evidence:
            if evidence.start_us is not None and evidence.end_us is not None:
                start_ns, length_ns = evidence.start_us * 1e3, (evidence.end_us - evidence.start_us) * 1e3
                details = {**facts, "rank": evidence.rank, "event": evidence.event}
                yield _slice(FINDINGS_PROCESS, thread, start_ns, length_ns, evidence.text, details)


def _slice(
    process: int, thread: int, start_ns: float, length_ns: float, name: str, args: dict[str, Any]
) -> dict[str, Any]:
    times = {"ts": round(start_ns / 1e3, 3), "dur": round(length_ns / 1e3, 3)}
    return {"ph": "X", "pid": process, "tid": thread, **times, "name": name, "args": args}


def _meta(kind: str, process: int, thread: int, args: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "M", "pid": process, "tid": thread, "name": kind, "args": args}
