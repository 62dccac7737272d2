"""Counters of the host."""

from ddprof.capture.launcher.host.counters import HostCounters
from ddprof.capture.launcher.host.gpus import GpuWatch


def test_counters_only_grow() -> None:
    counters = HostCounters(GpuWatch(None))
    first, second = counters.sample(), counters.sample()
    assert second["at_ns"] > first["at_ns"]
    before, after = first["cpu"]["jiffies"], second["cpu"]["jiffies"]
    assert all(after[name] >= value for name, value in before.items() if name != "iowait")
