"""What the host counters of a run that is still being written say now. Nothing is kept between looks.

Bounded: each host's counters are read for their last lines.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from msgspec import DecodeError, Struct, field
from msgspec.json import Decoder

from ddprof.capture.files.layout import COUNTERS_SUFFIX
from ddprof.sidecar import Real, Whole

TAIL_BYTES = 64_000  # of a counters file: some minutes of lines
COUNTERS = f"host.*{COUNTERS_SUFFIX}"


class GpuNow(Struct, frozen=True):
    """One device: utilisation in percent, memory in bytes; None where it is not measured."""

    index: Whole | None = None
    busy_percent: Real | None = None
    used_bytes: Whole | None = None
    total_bytes: Whole | None = None


class _Cpu(Struct, frozen=True):
    jiffies: dict[str, Whole] = field(default_factory=dict)


class _Memory(Struct, frozen=True):
    total_bytes: Whole | None = None
    available_bytes: Whole | None = None


class _Sample(Struct, frozen=True):
    """A line of a counters file: what of it the page shows."""

    cpu: _Cpu = _Cpu()
    memory: _Memory = _Memory()
    gpus: tuple[GpuNow, ...] = ()


_SAMPLE = Decoder(_Sample)


@dataclass(frozen=True)
class HostNow:
    """One host's newest sample: utilisation in percent, memory in bytes; None where it is not measured."""

    host: str
    cpu_percent: float | None
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    gpus: tuple[GpuNow, ...]


def hosts_now(folder: str) -> list[HostNow]:
    """The newest counters of every host that writes them (`ddprof run --mode monitor`)."""
    found = []
    for path in sorted(Path(folder).glob(COUNTERS)) if folder else []:
        samples = _last_samples(path)
        if samples:
            found.append(_host(path.name.split(".")[1], samples))
    return found


def _last_samples(path: Path) -> list[_Sample]:
    """The samples in the file's tail; the first line may be cut, the last one half written, others of another type."""
    try:
        if not path.is_file():
            return []
        with path.open("rb") as stream:
            stream.seek(0, 2)
            stream.seek(max(0, stream.tell() - TAIL_BYTES))
            lines = stream.read(TAIL_BYTES).splitlines()
    except OSError:
        return []
    samples = []
    for line in lines:
        try:
            samples.append(_SAMPLE.decode(line))
        except (DecodeError, RecursionError):
            continue
    return samples


def _host(name: str, samples: list[_Sample]) -> HostNow:
    last = samples[-1]
    total, available = last.memory.total_bytes, last.memory.available_bytes
    used = total - available if total is not None and available is not None else None
    return HostNow(name, _cpu_percent(samples[-10:]), used, total, last.gpus)


def _cpu_percent(samples: list[_Sample]) -> float | None:
    """Busy share of all cores between the first and the last of some samples; counters are cumulative."""
    known = [s.cpu.jiffies for s in samples if s.cpu.jiffies]
    if len(known) < 2:
        return None
    spent = {key: known[-1].get(key, 0) - known[0].get(key, 0) for key in known[-1]}
    total = sum(spent.values())
    return 100.0 * (total - spent.get("idle", 0) - spent.get("iowait", 0)) / total if total > 0 else None
