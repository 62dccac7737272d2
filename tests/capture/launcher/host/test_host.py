"""Counters of a host and its GPUs, through a library that answers as NVIDIA's does."""

import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ddprof.capture.launcher.host.counters import HostCounters
from ddprof.capture.launcher.host.gpus import GpuWatch
from ddprof.capture.launcher.host.nvml import Nvml


def test_counters_only_grow() -> None:
    counters = HostCounters(GpuWatch(None))
    first, second = counters.sample(), counters.sample()
    assert second["at_ns"] > first["at_ns"]
    before, after = first["cpu"]["jiffies"], second["cpu"]["jiffies"]
    assert all(after[name] >= value for name, value in before.items() if name != "iowait")


SW_POWER_CAP, GPU_IDLE, HW_THERMAL = 0x4, 0x1, 0x40


def library(samples: list[tuple[int, int, int]], busy_percent: int = 90) -> Any:
    """Two GPUs. The second one's throttle reasons, busy percentage and clock are given sample by sample."""
    given, now = iter(samples), [(0, 0, 0)]

    def number(value: Callable[[int], int], field: str = "value") -> Callable[..., Any]:
        return lambda handle, *arguments: setattr(arguments[-1]._obj, field, value(handle)) or 0

    def power(handle: int) -> int:
        """The first query of a sample."""
        now[0] = next(given) if handle == 1 else now[0]
        return 300_000

    def uuid(handle: int, text: Any, size: int) -> int:
        text.value = f"GPU-{handle}".encode()
        return 0

    return SimpleNamespace(
        nvmlDeviceGetPowerUsage=number(power),
        nvmlDeviceGetClockInfo=number(lambda handle: now[0][2] if handle else 1900),
        nvmlDeviceGetCurrentClocksThrottleReasons=number(lambda handle: now[0][0] if handle else 0),
        nvmlDeviceGetEnforcedPowerLimit=number(lambda handle: 310_000 if handle else 700_000),
        nvmlDeviceGetUtilizationRates=number(lambda handle: busy_percent, "gpu"),
        nvmlDeviceGetTemperature=lambda *_: 3,  # NVML_ERROR_NOT_SUPPORTED
        nvmlDeviceGetUUID=uuid,
    )


def watch(samples: list[tuple[int, int, int]], busy_percent: int = 90) -> GpuWatch:
    gpus = GpuWatch(Nvml(library(samples, busy_percent), {0: 0, 1: 1}))
    for _ in samples:
        gpus.sample()
    return gpus


def test_busy_samples_are_counted_by_reason_and_an_idle_gpu_or_no_driver_says_nothing() -> None:
    first, second = watch([(SW_POWER_CAP, 90, 1200), (SW_POWER_CAP | HW_THERMAL, 90, 1300), (0, 90, 1400)]).summary()
    assert (first["uuid"], first["power_limit_mw"], first["throttled"]) == ("GPU-0", 700_000, {})
    assert (second["samples"], second["busy_samples"]) == (3, 3)
    assert second["throttled"] == {"sw_power_cap": 2, "hw_thermal": 1}
    assert (second["sm_clock_mhz"], second["power_mw"], second["power_limit_mw"]) == (1300, 300_000, 310_000)
    assert second["temperature_max_c"] is None  # the driver does not say
    assert "max_sm_clock_mhz" not in second  # a library that does not know the query
    _, second = watch([(SW_POWER_CAP | GPU_IDLE, 0, 300)], busy_percent=0).summary()
    assert (second["samples"], second["busy_samples"], second["throttled"]) == (1, 0, {})
    assert "sm_clock_mhz" not in second
    gpus = GpuWatch(None)
    gpus.tick()
    assert not gpus.exists and gpus.summary() == []


def test_ticks_are_a_second_apart_and_monitor_mode_books_its_own_samples() -> None:
    gpus = GpuWatch(Nvml(library([(0, 90, 1000)] * 3), {0: 0, 1: 1}))
    gpus.tick()
    gpus.tick()
    assert gpus.summary()[0]["samples"] == 1
    assert [gpu["index"] for gpu in HostCounters(gpus).sample()["gpus"]] == [0, 1]
    assert gpus.summary()[0]["samples"] == 2


def test_a_gpu_that_fell_off_its_bus_leaves_the_others_their_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    def handle_of(index: int, handle: Any) -> int:
        handle._obj.value = index
        return 15 if index == 1 else 0  # NVML_ERROR_GPU_IS_LOST

    answers = SimpleNamespace(
        nvmlInit_v2=lambda: 0,
        nvmlDeviceGetCount_v2=lambda count: setattr(count._obj, "value", 3) or 0,
        nvmlDeviceGetHandleByIndex_v2=handle_of,
    )
    monkeypatch.setattr(ctypes, "CDLL", lambda name: answers)
    gpus = Nvml.open()
    assert gpus is not None and [gpu["index"] for gpu in gpus.sample()] == [0, 2]
    assert [gpu["index"] for gpu in gpus.devices()] == [0, 2]
