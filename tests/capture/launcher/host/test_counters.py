"""Counters of the host."""

from ddprof.capture.launcher.host.counters import HostCounters
from ddprof.capture.launcher.host.gpus import GpuWatch


def test_counters_only_grow() -> None:
    counters = HostCounters(GpuWatch(None))
    first, second = counters.sample(), counters.sample()
    assert second["at_ns"] > first["at_ns"]
    assert all(
        second["cpu"]["jiffies"][name] >= value for name, value in first["cpu"]["jiffies"].items() if name != "iowait"
    )
