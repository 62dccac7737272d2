"""NVIDIA's management library through ctypes.

Power, clocks, why they are throttled, temperature, utilisation, memory; and what does not change: each GPU's UUID,
power limit and highest clock.
"""

from __future__ import annotations

import ctypes
from typing import Any

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


class _Utilisation(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class Nvml:
    """An initialised library. A query the driver does not support gives no value."""

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
