"""A log's statements on its devices: the share of their peak rate (mfu), memory in use, allocations tried again.

step: 1700  loss:  4.89452 ... memory: 29.90GiB(95.36%)  tps: 26,522  tflops: 18.03  mfu: 5.78%
... - root - WARNING - 3399 CUDA memory allocation retries.
... [stage3.py:1998:step] 3 pytorch allocator cache flushes since last step. this happens when ...
"""

from __future__ import annotations

import re
from statistics import median

from ddprof.readers.numbers import one_float, one_int
from ddprof.slices.training_logs.model import LoggedDevices

_MFU = re.compile(
    r"\bmfu(?:[:=]? ?(?P<after>\d[\d.]{0,12}) ?%|\(%\)\"?: ?(?P<of>\d[\d.]{0,12}))"
    r"|(?P<before>\d[\d.]{0,12})% (?:bf16 )?MFU\b"
)
_MEMORY = re.compile(r"\bmemory: ? ?[\d.]{1,12}GiB\((?P<percent>[\d.]{1,12})%\)")
# torchtitan counts since the start, DeepSpeed since the step before.
_RETRIES = re.compile(
    r"(?P<all>\d{1,15}) CUDA memory allocation retries|(?P<more>\d{1,15}) pytorch allocator cache flu"
)


class DeviceLines:
    """Collects such values from the lines of one log."""

    def __init__(self) -> None:
        self._mfu: list[float] = []
        self._memory = 0.0
        self._retries, self._since_start = 0, 0

    def take(self, text: str) -> None:
        """Read the next line."""
        if ("mfu" in text or "MFU" in text) and (mfu := _MFU.search(text)) is not None:
            self._mfu.append(one_float(mfu["after"] or mfu["of"] or mfu["before"]) or 0.0)
        if "memory: " in text and (memory := _MEMORY.search(text)) is not None:
            self._memory = max(self._memory, one_float(memory["percent"]) or 0.0)
        if "alloca" in text and (retries := _RETRIES.search(text)) is not None:
            number = one_int(retries["all"] or retries["more"])
            if retries["more"]:
                self._retries += number
                return
            self._retries += number - (self._since_start if number >= self._since_start else 0)
            self._since_start = number

    def devices(self) -> LoggedDevices:
        """The values of the whole log."""
        mfu = median(self._mfu) / 100 if self._mfu else None
        return LoggedDevices(mfu, self._memory / 100 or None, self._retries)
