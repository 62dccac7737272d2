"""Counters beside the lanes: capture's samples of each host and its devices, and each rank's device memory.

Only samples of the traced time, and the one before and after it. A rate stands at the end of its second.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ddprof.analyzers.job.model import JobFacts
from ddprof.capture.files.layout import COUNTERS_SUFFIX
from ddprof.report.phrases import clean
from ddprof.untrusted.regular_files import read_bounded

MAX_FILE_BYTES = 64 << 20  # of one host: four times what eight GPUs write
MAX_SAMPLES = 2_000  # of one track
MAX_TRACKS = 200
_GPU = (
    ("sm_clock_mhz", "clock", "MHz", 1.0),
    ("power_mw", "power", "W", 1e-3),
    ("used_bytes", "memory", "GiB", 2.0**-30),
    ("busy_percent", "busy", "%", 1.0),
    ("temperature_c", "temperature", "°C", 1.0),
)
_IDLE = ("idle", "iowait")
Points = dict[tuple[str, str], list[tuple[int, float]]]  # (name, unit) -> (unix ns, value)


def counter_tracks(job: JobFacts, folder: str, lo_ns: int, hi_ns: int) -> list[dict[str, Any]]:
    """`label`, `unit`, `rank` (None: of a host), `at_us` since the run's start and `values` of each track, within
    [lo, hi] ns since the run's start. [] where nothing was recorded, or nothing can be placed on the run's clock."""
    tracks = list(_memory(job))
    if folder and all(facts.has_base_time for facts in job.ranks):
        for path in sorted(Path(folder).glob(f"host.*{COUNTERS_SUFFIX}")):
            tracks += _of_host(path, job.origin_ns, lo_ns, hi_ns)
    return tracks[:MAX_TRACKS]


def _memory(job: JobFacts) -> Iterator[dict[str, Any]]:
    for position, (rank, facts) in enumerate(zip(job.rank_ids, job.ranks, strict=True)):
        curve = facts.memory.get("curve") or {}
        shift = job.shift_ns(position)
        for column, words in (("allocated_bytes", "memory allocated"), ("reserved_bytes", "memory reserved")):
            pairs = zip(curve.get("at_ns", ()), curve.get(column, ()), strict=False)
            points = [(at - shift, value * 2.0**-30) for at, value in pairs if value is not None]
            if points:
                yield _track(f"rank {rank} {words}", "GiB", rank, points)


def _track(label: str, unit: str, rank: int | None, points: list[tuple[int, float]]) -> dict[str, Any]:
    at, values = [ns / 1e3 for ns, _ in points], [round(value, 4) for _, value in points]
    return {"label": label, "unit": unit, "rank": rank, "at_us": at, "values": values}


def _of_host(path: Path, origin_ns: int, lo_ns: int, hi_ns: int) -> Iterator[dict[str, Any]]:
    samples = sorted(_samples(path), key=lambda sample: int(sample["at_ns"]))
    inside = [n for n, s in enumerate(samples) if lo_ns <= s["at_ns"] - origin_ns <= hi_ns]
    around = [n for n, s in enumerate(samples) if s["at_ns"] - origin_ns < lo_ns]
    first = (inside or around or [0])[0] if inside else (around or [0])[-1]
    last = inside[-1] if inside else first
    shown = samples[max(0, first - 2) : last + 2]  # two before: a rate needs one more
    shown = shown[:: max(1, math.ceil(len(shown) / MAX_SAMPLES))]
    host = clean(path.name.split(".")[1])
    for (name, unit), points in _points(shown).items():
        placed = [(at - origin_ns, value) for at, value in points]
        if placed and placed[-1][0] >= lo_ns and placed[0][0] <= hi_ns:
            yield _track(f"{host} {name}", unit, None, placed)


def _samples(path: Path) -> Iterator[dict[str, Any]]:
    """The valid samples of a file; the last line may be truncated."""
    try:
        lines = read_bounded(path, MAX_FILE_BYTES).splitlines()
    except OSError:
        return
    for line in lines:
        try:
            sample = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(sample, dict) and type(sample.get("at_ns")) is int:
            yield sample


def _points(samples: list[dict[str, Any]]) -> Points:
    points: Points = {}
    for before, sample in zip([None, *samples], samples, strict=False):
        for name, unit, value in (*_levels(sample), *(_rates(before, sample) if before else ())):
            points.setdefault((name, unit), []).append((sample["at_ns"], value))
    return points


def _levels(sample: Mapping[str, Any]) -> Iterator[tuple[str, str, float]]:
    gpus = sample.get("gpus")
    for gpu in gpus if isinstance(gpus, list) else ():
        for key, words, unit, scale in _GPU:
            value = _number(gpu, key)
            if value is not None:
                yield f"GPU {_number(gpu, 'index') or 0:.0f} {words}", unit, value * scale
    memory = sample.get("memory")
    total, available = _number(memory, "total_bytes"), _number(memory, "available_bytes")
    if total is not None and available is not None:
        yield "host memory", "GiB", (total - available) * 2.0**-30


def _rates(before: Mapping[str, Any], sample: Mapping[str, Any]) -> Iterator[tuple[str, str, float]]:
    seconds = (sample["at_ns"] - before["at_ns"]) / 1e9
    if seconds <= 0:
        return
    spent = _grown(_inner(before, "cpu", "jiffies"), _inner(sample, "cpu", "jiffies"))
    if sum(spent.values()) > 0:
        busy = sum(value for key, value in spent.items() if key not in _IDLE)
        yield "cores busy", "%", 100.0 * busy / sum(spent.values())
    for kind, keys in (
        ("network", ("received_bytes", "sent_bytes")),
        ("infiniband", ("port_rcv_data", "port_xmit_data")),
    ):
        names = sample.get(kind)
        for name in names if isinstance(names, dict) else ():
            grown = _grown(_inner(before, kind, name), _inner(sample, kind, name))
            if set(keys) <= set(grown):
                yield f"{kind} {clean(name)[:20]}", "MB/s", sum(grown[key] for key in keys) / seconds / 1e6


def _inner(sample: Mapping[str, Any], kind: str, name: str) -> Mapping[str, Any]:
    outer = sample.get(kind)
    inner = outer.get(name) if isinstance(outer, dict) else None
    return inner if isinstance(inner, dict) else {}


def _grown(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, float]:
    """Growth of counters, without those that fell as the machine was restarted."""
    pairs = {key: (_number(before, key), _number(after, key)) for key in after}
    return {key: b - a for key, (a, b) in pairs.items() if a is not None and b is not None and b >= a}


def _number(of: Any, key: str) -> float | None:
    value = of.get(key) if isinstance(of, dict) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < 1e18 else None
