"""Host counters once a second, from /proc, /sys and NVML, read by the launching process at no cost to training.

A kind of counter that this machine does not have is absent from the samples.

Monitor mode keeps them in two files of JSON lines: one sample per second for the last one to two hours, and one line
per minute, which sums up its samples, for the last week. Both are cut by writing what is kept to a temporary name and
renaming that, so that a reader finds whole lines at any moment. A job that is started again in the same run folder
continues the files of its earlier starts, so that the bound holds for all of them together.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ddprof.capture.files.layout import COUNTERS_BY_MINUTE_SUFFIX, COUNTERS_SUFFIX
from ddprof.capture.files.storage import count_in, open_to_append, parse_object, replacing, text_of
from ddprof.capture.launcher.host.gpus import GpuWatch
from ddprof.capture.launcher.live import runs_here
from ddprof.untrusted.regular_files import read_bounded

_IB_COUNTERS = ("port_xmit_data", "port_rcv_data", "port_xmit_wait", "symbol_error", "link_downed")
_IB_WORD_BYTES = 4  # port_*_data count 32-bit words
_LOOPBACK = "lo"
KEPT_SECONDS = 3_600  # lines; cut back to this at twice as many
KEPT_MINUTES = 7 * 24 * 60  # lines; cut back to this a day later
_MINUTES_SLACK = 24 * 60
_MAX_BYTES = 256 << 20  # of a file: ten times what eight GPUs write
_MINUTE_NS = 60_000_000_000
_CUMULATIVE = {"jiffies", "network", "infiniband"}  # counters: their last value says all, a mean says nothing


class HostCounters:
    """Cumulative counters as the kernel keeps them (bytes, jiffies): a reader takes differences."""

    def __init__(self, gpus: GpuWatch) -> None:
        self._gpus = gpus

    def sample(self) -> dict[str, Any]:
        """One sample; `at_ns` is unix time."""
        sample: dict[str, Any] = {"at_ns": time.time_ns()}
        for name, read in (("cpu", _cpu), ("memory", _memory), ("network", _network), ("infiniband", _infiniband)):
            value = read()
            if value:
                sample[name] = value
        gpus = self._gpus.sample()
        if gpus:
            sample["gpus"] = gpus
        return sample


def _cpu() -> dict[str, Any]:
    lines = text_of("/proc/stat").splitlines()
    if not lines:
        return {}
    names = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
    jiffies = dict(zip(names, map(int, lines[0].split()[1:9]), strict=False))
    load = text_of("/proc/loadavg").splitlines()
    return {"jiffies": jiffies, "load_1m": float(load[0].split()[0]) if load else None}


def _memory() -> dict[str, int]:
    wanted = {"MemTotal": "total_bytes", "MemAvailable": "available_bytes", "Dirty": "dirty_bytes"}
    sizes = {}
    for line in text_of("/proc/meminfo").splitlines():
        name, _, rest = line.partition(":")
        if name in wanted:
            sizes[wanted[name]] = int(rest.split()[0]) * 1024
    return sizes


def _network() -> dict[str, dict[str, int]]:
    interfaces = {}
    for line in text_of("/proc/net/dev").splitlines()[2:]:
        name, _, rest = line.partition(":")
        fields = rest.split()
        if name.strip() != _LOOPBACK and len(fields) >= 12:
            received, sent = int(fields[0]), int(fields[8])
            interfaces[name.strip()] = {
                "received_bytes": received,
                "sent_bytes": sent,
                "drops": int(fields[3]) + int(fields[11]),
            }
    return interfaces


def _infiniband() -> dict[str, dict[str, int]]:
    ports: dict[str, dict[str, int]] = {}
    for counters in Path("/sys/class/infiniband").glob("*/ports/*/counters"):
        values = {}
        for name in _IB_COUNTERS:
            count = count_in(counters / name)
            if count is not None:
                values[name] = count * (_IB_WORD_BYTES if name.endswith("_data") else 1)
        ports[f"{counters.parents[2].name}/{counters.parent.name}"] = values
    return ports


class CounterLog:
    """Both files of one host. `stem` is their path without suffix. Methods raise OSError where they cannot write."""

    def __init__(self, stem: Path) -> None:
        self._seconds = _Lines(stem.with_name(stem.name + COUNTERS_SUFFIX), KEPT_SECONDS, 2 * KEPT_SECONDS)
        self._minutes = _Lines(
            stem.with_name(stem.name + COUNTERS_BY_MINUTE_SUFFIX), KEPT_MINUTES, KEPT_MINUTES + _MINUTES_SLACK
        )
        self._minute: list[dict[str, Any]] = []  # the samples of the minute under way

    def add(self, sample: dict[str, Any]) -> None:
        """Append one sample of `HostCounters`; summarise a minute that it completes."""
        self._seconds.append(sample)
        minute = self._minute
        if minute and sample["at_ns"] // _MINUTE_NS != minute[0]["at_ns"] // _MINUTE_NS:
            self._minute = []
            self._minutes.append(summed_up(minute))
        self._minute.append(sample)


def summed_up(samples: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Summary line of one or more samples: `from_ns`, `to_ns`, `samples`, and the keys of a sample.

    A measured number becomes [min, mean, max], a cumulative counter its last value, a list of reasons the number of
    samples with each.
    """
    times = [sample["at_ns"] for sample in samples]
    rest = [{key: value for key, value in sample.items() if key != "at_ns"} for sample in samples]
    return {"from_ns": times[0], "to_ns": times[-1], "samples": len(samples), **_of_mappings(rest, cumulative=False)}


def _of_mappings(mappings: Sequence[dict[str, Any]], cumulative: bool) -> dict[str, Any]:
    keys = {key: None for mapping in mappings for key in mapping}  # a set that keeps the order
    return {
        key: _of_values([m[key] for m in mappings if m.get(key) is not None], cumulative or key in _CUMULATIVE, key)
        for key in keys
    }


def _of_values(values: Sequence[Any], cumulative: bool, key: str) -> Any:
    if not values:
        return None
    last = values[-1]
    if isinstance(last, dict):
        return _of_mappings(values, cumulative)
    if key == "gpus":
        devices = {gpu["index"]: None for gpus in values for gpu in gpus}
        return [_of_mappings([g for gpus in values for g in gpus if g["index"] == at], False) for at in devices]
    if isinstance(last, list | tuple):
        return dict(Counter(reason for reasons in values for reason in reasons))
    if cumulative or key == "index" or not isinstance(last, int | float):
        return last
    return [min(values), round(sum(values) / len(values), 3), max(values)]


class _Lines:
    """A file of JSON lines that is cut back to its last `kept` whenever it reaches `limit` lines."""

    def __init__(self, path: Path, kept: int, limit: int) -> None:
        self._path, self._kept, self._limit = path, kept, limit
        self._count: int | None = None  # before the first line: what earlier starts left is not counted yet

    def append(self, line: dict[str, Any]) -> None:
        if self._count is None:
            self._count = self._take_over()
        with os.fdopen(open_to_append(self._path), "w", encoding="utf-8") as stream:
            stream.write(json.dumps(line, separators=(",", ":")) + "\n")
        self._count += 1
        if self._count >= self._limit:
            self._count = self._keep_last(_read_lines(self._path) or [])

    def _take_over(self) -> int:
        """Continue the lines that ended starts of this job wrote on this host. Returns the number of lines kept.

        Their files go only once their lines are in this one: a kill in between leaves lines twice, which the next
        start takes for one. A last line cut off by a kill is dropped.
        """
        files = [path for path in self._path.parent.glob(_same_host(self._path.name)) if self._has_ended(path)]
        ended = {path: kept for path in files if (kept := _read_lines(path)) is not None}
        if not ended:
            return 0
        lines: dict[bytes, int] = {}  # line -> when, unix ns
        for kept in ended.values():
            for line in kept:
                at_ns = _time_of(line)
                if at_ns is not None:
                    lines[line] = at_ns
        count = self._keep_last(sorted(lines, key=lines.__getitem__))
        for path in ended:
            if path != self._path:
                path.unlink(missing_ok=True)
        return count

    def _has_ended(self, path: Path) -> bool:
        """True where no other process writes to `path`; in a container every start may have the same process id."""
        pid = path.name.split(".")[2]
        return path == self._path or (pid.isdigit() and not runs_here(int(pid)))

    def _keep_last(self, lines: Sequence[bytes]) -> int:
        """Replace the file by the last `kept` of some lines. Returns their number."""
        lines = lines[-self._kept :]
        temporary = self._path.with_name(f".{self._path.name}.tmp")
        with replacing(self._path, temporary) as stream:
            stream.write(b"".join(line + b"\n" for line in lines))
        return len(lines)


def _same_host(name: str) -> str:
    """Pattern of files named like `name` (host.LABEL.PID.SUFFIX) with any process id."""
    host, label, _, suffix = name.split(".", 3)
    return f"{host}.{label}.*.{suffix}"


def _read_lines(path: Path) -> list[bytes] | None:
    """Lines of a file; None where it is damaged, or another launcher of this host took it over meanwhile."""
    try:
        return read_bounded(path, _MAX_BYTES).splitlines()
    except OSError:
        return None


def _time_of(line: bytes) -> int | None:
    """End of a sample or minute, unix ns; None for an incomplete line."""
    try:
        content = parse_object(line, "counters")
    except ValueError:
        return None
    at_ns = content.get("to_ns", content.get("at_ns"))
    return at_ns if type(at_ns) is int else None
