"""The GPUs of this host while the job runs, sampled once a second, to explain a slow device.

Samples are added up as they come, so memory does not grow with the job.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from ddprof.capture.launcher.host.nvml import Nvml

_PERIOD_S = 1.0
_MEANS = ("sm_clock_mhz", "power_mw")


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
        """One entry per GPU, as nvml.py gives it, added to the totals; [] without NVIDIA's driver."""
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
        """Count one sample of `nvml`. Clocks and throttling count only while the GPU is busy."""
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
