"""The GPUs of this host while the job runs, sampled once a second, to explain a slow device.

Samples are added up as they come, so memory does not grow with the job.
"""

from __future__ import annotations

import ctypes
import time
from collections import Counter
from typing import Any

_PERIOD_S = 1.0
_MEANS = ("sm_clock_mhz", "power_mw")
_SM_CLOCK = 1  # NVML_CLOCK_SM
_TEMPERATURE_GPU = 0  # NVML_TEMPERATURE_GPU
_UUID_BYTES = 96  # NVML_DEVICE_UUID_V2_BUFFER_SIZE
# nvmlClocksEventReasons*, nvml.h
_THROTTLE_REASONS = {
    0x0000000000000004: "sw_power_cap",
    0x0000000000000008: "hw_slowdown",
    0x0000000000000020: "sw_thermal",
    0x0000000000000040: "hw_thermal",
    0x0000000000000080: "hw_power_brake",
}


class GpuWatch:
    """Samples NVML and keeps totals per GPU."""

    def __init__(self, nvml: Nvml | None) -> None:
        self._nvml = nvml
        self._tallies: dict[int, _Tally] = {}
        self._next = 0.0

    @property
    def exists(self) -> bool:
        """True where there is a GPU to watch."""
        return self._nvml is not None

    def sample(self) -> list[dict[str, Any]]:
        """One entry per GPU, as `Nvml` gives it, added to the totals; [] without NVIDIA's driver."""
        gpus = self._nvml.sample() if self._nvml is not None else []
        for gpu in gpus:
            self._tallies.setdefault(gpu["index"], _Tally()).add(gpu)
        return gpus

    def tick(self) -> None:
        """Sample, if a second has passed."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _PERIOD_S
            self.sample()

    def summary(self) -> list[dict[str, Any]]:
        """Per GPU: its constants and `{samples, busy_samples, throttled{reason: busy samples}, sm_clock_mhz, power_mw,
        temperature_max_c}` (means while busy). [] where nothing was sampled."""
        if self._nvml is None or not self._tallies:
            return []
        return [{**gpu, **self._tallies.get(gpu["index"], _Tally()).summary()} for gpu in self._nvml.devices()]


class _Tally:
    def __init__(self) -> None:
        self.samples = self.busy = 0
        self.throttled: Counter[str] = Counter()
        self.sums: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self.hottest_c: int | None = None

    def add(self, gpu: dict[str, Any]) -> None:
        """Count one sample of `Nvml`. Clocks and throttling count only while the GPU is busy."""
        self.samples += 1
        if not gpu.get("busy_percent"):
            return
        self.busy += 1
        self.throttled.update(gpu.get("throttled_by") or ())
        for name in _MEANS:
            if name in gpu:
                self.sums[name] += gpu[name]
                self.counts[name] += 1
        if "temperature_c" in gpu:
            self.hottest_c = max(gpu["temperature_c"], self.hottest_c or 0)

    def summary(self) -> dict[str, Any]:
        """Samples, busy ones, busy ones by reason of throttling; means over busy samples; highest temperature."""
        means = {name: self.sums[name] // count for name, count in self.counts.items()}
        return {
            "samples": self.samples,
            "busy_samples": self.busy,
            "throttled": dict(self.throttled),
            **means,
            "temperature_max_c": self.hottest_c,
        }


class _Utilisation(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class Nvml:
    """NVIDIA's management library through ctypes, initialised. A query the driver does not support gives no value."""

    def __init__(self, library: Any, handles: dict[int, Any]) -> None:
        """`handles`: of each GPU that answers, by its index."""
        self._library = library
        self._handles = handles

    @classmethod
    def open(cls) -> Nvml | None:
        """The library, or None on a machine without NVIDIA's driver."""
        try:
            library = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            return None
        count = ctypes.c_uint()
        if library.nvmlInit_v2() or library.nvmlDeviceGetCount_v2(ctypes.byref(count)):
            return None
        handles = {}
        for index in range(count.value):
            handle = ctypes.c_void_p()
            if not library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)):
                handles[index] = handle
        return cls(library, handles)

    def devices(self) -> list[dict[str, Any]]:
        """GPUs of this host: `{index, uuid, power_limit_mw, max_sm_clock_mhz}`."""
        return [self._constants(index, handle) for index, handle in self._handles.items()]

    def sample(self) -> list[dict[str, Any]]:
        """One entry per GPU of this host."""
        return [self._device(index, handle) for index, handle in self._handles.items()]

    def _constants(self, index: int, handle: Any) -> dict[str, Any]:
        entry: dict[str, Any] = {"index": index}
        text, number = ctypes.create_string_buffer(_UUID_BYTES), ctypes.c_uint()
        if self._asked("nvmlDeviceGetUUID", handle, text, _UUID_BYTES):
            entry["uuid"] = text.value.decode("ascii", "replace")
        if self._asked("nvmlDeviceGetEnforcedPowerLimit", handle, ctypes.byref(number)):
            entry["power_limit_mw"] = number.value
        if self._asked("nvmlDeviceGetMaxClockInfo", handle, _SM_CLOCK, ctypes.byref(number)):
            entry["max_sm_clock_mhz"] = number.value
        return entry

    def _device(self, index: int, handle: Any) -> dict[str, Any]:
        entry: dict[str, Any] = {"index": index}
        number = ctypes.c_uint()
        if self._asked("nvmlDeviceGetPowerUsage", handle, ctypes.byref(number)):
            entry["power_mw"] = number.value
        if self._asked("nvmlDeviceGetClockInfo", handle, _SM_CLOCK, ctypes.byref(number)):
            entry["sm_clock_mhz"] = number.value
        if self._asked("nvmlDeviceGetTemperature", handle, _TEMPERATURE_GPU, ctypes.byref(number)):
            entry["temperature_c"] = number.value
        rates, memory, reasons = _Utilisation(), _Memory(), ctypes.c_ulonglong()
        if self._asked("nvmlDeviceGetUtilizationRates", handle, ctypes.byref(rates)):
            entry["busy_percent"] = rates.gpu
        if self._asked("nvmlDeviceGetMemoryInfo", handle, ctypes.byref(memory)):
            entry["used_bytes"] = memory.used
        if self._asked("nvmlDeviceGetCurrentClocksThrottleReasons", handle, ctypes.byref(reasons)):
            entry["throttled_by"] = [name for bit, name in _THROTTLE_REASONS.items() if reasons.value & bit]
        return entry

    def _asked(self, query: str, *arguments: Any) -> bool:
        """True where the library has this query and answered it."""
        function = getattr(self._library, query, None)
        return function is not None and function(*arguments) == 0
