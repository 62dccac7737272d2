"""Counters beside the lanes: capture's samples of each host and its devices, and each rank's device memory.

Only samples of the traced time, and the one before and after it. A rate stands at the end of its second.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import DecodeError, Struct
from msgspec.json import Decoder

from ddprof.analyzers.job.model import JobFacts
from ddprof.capture.files.layout import COUNTERS_SUFFIX
from ddprof.report.phrases import clean
from ddprof.sidecar import Count, Real, Whole
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
COUNTERS = f"host.*{COUNTERS_SUFFIX}"
Points = dict[tuple[str, str], list[tuple[int, float]]]  # (name, unit) -> (unix ns, value)


class GpuSample(Struct, frozen=True):
    """One device: utilisation in percent, memory in bytes; None where it is not measured."""

    index: Whole | None = None
    busy_percent: Real | None = None
    used_bytes: Whole | None = None
    total_bytes: Whole | None = None
    sm_clock_mhz: Real | None = None
    power_mw: Real | None = None
    temperature_c: Real | None = None


class _Cpu(Struct, frozen=True):
    jiffies: dict[str, Whole] = {}


class _Memory(Struct, frozen=True):
    total_bytes: Whole | None = None
    available_bytes: Whole | None = None

    @property
    def used_bytes(self) -> int | None:
        """Bytes in use; None where they are not known."""
        return (
            None
            if self.total_bytes is None or self.available_bytes is None
            else self.total_bytes - self.available_bytes
        )


class CounterSample(Struct, frozen=True):
    """A line of a host's counters, the parts that pages show. Counters of its CPUs and ports are cumulative."""

    at_ns: Count = 0
    cpu: _Cpu = _Cpu()
    memory: _Memory = _Memory()
    network: dict[str, dict[str, Whole]] = {}
    infiniband: dict[str, dict[str, Whole]] = {}
    gpus: tuple[GpuSample, ...] = ()


_SAMPLE = Decoder(CounterSample)


def samples_in(lines: Iterable[bytes]) -> Iterator[CounterSample]:
    """The valid samples; a file's last line may be half written."""
    for line in lines:
        try:
            yield _SAMPLE.decode(line)
        except (DecodeError, RecursionError):
            continue


def cores_busy(before: CounterSample, after: CounterSample) -> float | None:
    """Busy share of all cores between two samples, percent; None where it is not known."""
    spent = _grown(before.cpu.jiffies, after.cpu.jiffies)  # Linux lets iowait fall (Documentation/filesystems/proc.rst)
    busy = sum(value for key, value in spent.items() if key not in _IDLE)
    return 100.0 * busy / sum(spent.values()) if sum(spent.values()) > 0 else None


def counter_tracks(job: JobFacts, folder: str, lo_ns: int, hi_ns: int) -> list[dict[str, Any]]:
    """`label`, `unit`, `rank` (None: of a host), `at_us` since the run's start and `values` of each track, within
    [lo, hi] ns since the run's start. [] where nothing was recorded, or nothing can be placed on the run's clock."""
    tracks = list(_memory(job))
    if folder and all(facts.has_base_time for facts in job.ranks):
        for path in sorted(Path(folder).glob(COUNTERS)):
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
    samples = _samples(path)
    first, last = (bisect_left(samples, origin_ns + ns, key=lambda sample: sample.at_ns) for ns in (lo_ns, hi_ns + 1))
    shown = samples[max(0, first - 2) : last + 1]  # two before: a rate needs one more
    shown = shown[:: max(1, math.ceil(len(shown) / MAX_SAMPLES))]
    host = clean(path.name.split(".")[1])
    for (name, unit), points in _points(shown).items():
        placed = [(at - origin_ns, value) for at, value in points]
        if placed and placed[-1][0] >= lo_ns and placed[0][0] <= hi_ns:
            yield _track(f"{host} {name}", unit, None, placed)


def _samples(path: Path) -> list[CounterSample]:
    try:
        lines = read_bounded(path, MAX_FILE_BYTES).splitlines()
    except OSError:
        return []
    return sorted((sample for sample in samples_in(lines) if sample.at_ns), key=lambda sample: sample.at_ns)


def _points(samples: list[CounterSample]) -> Points:
    points: Points = {}
    for before, sample in zip([None, *samples], samples, strict=False):
        for name, unit, value in (*_levels(sample), *(_rates(before, sample) if before else ())):
            points.setdefault((name, unit), []).append((sample.at_ns, value))
    return points


def _levels(sample: CounterSample) -> Iterator[tuple[str, str, float]]:
    for gpu in sample.gpus:
        for key, words, unit, scale in _GPU:
            value = getattr(gpu, key)
            if value is not None:
                yield f"GPU {gpu.index or 0} {words}", unit, value * scale
    if (used := sample.memory.used_bytes) is not None:
        yield "host memory", "GiB", used * 2.0**-30


def _rates(before: CounterSample, sample: CounterSample) -> Iterator[tuple[str, str, float]]:
    seconds = (sample.at_ns - before.at_ns) / 1e9
    if seconds <= 0:
        return
    if (busy := cores_busy(before, sample)) is not None:
        yield "cores busy", "%", busy
    for kind, keys, earlier, later in (
        ("network", ("received_bytes", "sent_bytes"), before.network, sample.network),
        ("infiniband", ("port_rcv_data", "port_xmit_data"), before.infiniband, sample.infiniband),
    ):
        for name in later:
            grown = _grown(earlier.get(name, {}), later[name])
            if set(keys) <= set(grown):
                yield f"{kind} {clean(name)[:20]}", "MB/s", sum(grown[key] for key in keys) / seconds / 1e6


def _grown(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """Growth of counters, without those that fell as the machine was restarted."""
    return {key: after[key] - before[key] for key in after if key in before and after[key] >= before[key]}
