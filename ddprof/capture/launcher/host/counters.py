"""Host counters once a second, from /proc, /sys and NVML, read by the launching process at no cost to training.

A kind of counter that this machine does not have is absent from the samples.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from ddprof.capture.files.storage import text_of
from ddprof.capture.launcher.host.gpus import GpuWatch

_IB_COUNTERS = ("port_xmit_data", "port_rcv_data", "port_xmit_wait", "symbol_error", "link_downed")
_IB_WORD_BYTES = 4  # port_*_data count 32-bit words
_LOOPBACK = "lo"


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
            lines = text_of(counters / name).splitlines()
            if lines and lines[0].isdigit():
                values[name] = int(lines[0]) * (_IB_WORD_BYTES if name.endswith("_data") else 1)
        ports[f"{counters.parents[2].name}/{counters.parent.name}"] = values
    return ports
