"""A log's statements on its machine: devices (share of their peak rate, memory in use, allocations tried again, steps
that overflow), and transports by which NCCL joins ranks, from its own lines at NCCL_DEBUG=INFO, with what it warns of.

step: 1700  loss:  4.89452 ... memory: 29.90GiB(95.36%)  tps: 26,522  tflops: 18.03  mfu: 5.78%
... - root - WARNING - 3399 CUDA memory allocation retries.
[Rank 0] step=2000, skipped=1999, lr=[0.0, 0.0], mom=[0.0, 0.0]
... [stage3.py:1998:step] 3 pytorch allocator cache flushes since last step. this happens when ...
host:986:1254 [6] NCCL INFO Channel 00/0 : 6[6] -> 38[6] [send] via NET/IB/1/GDRDMA
host:986:1254 [6] NCCL INFO NCCL_P2P_DISABLE set by environment to 1
# Avg bus bandwidth    : 178.078
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from ddprof.readers.numbers import one_float, one_int
from ddprof.slices.training_logs.model import LoggedDevices, LoggedTransports
from ddprof.slices.training_logs.reading.lines import NOWHERE, LogLine, Span

_MFU = re.compile(
    r"\bmfu(?:[:=]? ?(?P<after>\d[\d.]{0,12}) ?%|\(%\)\"?: ?(?P<of>\d[\d.]{0,12}))"
    r"|(?P<before>\d[\d.]{0,12})% (?:bf16 )?MFU\b"
)
_BEFORE_MFU = 24  # characters of such a match
_MEMORY = re.compile(r"\bmemory: ? ?[\d.]{1,12}GiB\((?P<percent>[\d.]{1,12})%\)")
# torchtitan counts since the start, DeepSpeed since the step before.
_RETRIES = re.compile(
    r"(?P<all>\d{1,15}) CUDA memory allocation retries|(?P<more>\d{1,15}) pytorch allocator cache flu"
)

_SKIPPED = re.compile(r"\bstep=(?P<steps>\d{1,12}), skipped=(?P<skipped>\d{1,12}),")

OF_DEVICES = ("mfu", "MFU", "memory: ", ", skipped=", "alloca")


def rates_of(line: LogLine) -> tuple[Span, Span] | None:
    """The places of mfu and memory in use, in per cent, in the whole text of a line; None where it holds more."""
    if ", skipped=" in line.text or "alloca" in line.text:
        return None
    places = []
    for match, names in zip(_rates(line.text), (("after", "of", "before"), ("percent",)), strict=True):
        begin, end = max(map(match.span, names)) if match else NOWHERE
        places.append((begin + len(line.prefix), end + len(line.prefix)) if match else NOWHERE)
    return places[0], places[1]


def _rates(text: str) -> tuple[re.Match[str] | None, re.Match[str] | None]:
    at, of_memory = text.lower().find("mfu"), text.find("memory: ")
    mfu = _MFU.search(text, max(0, at - _BEFORE_MFU)) if at >= 0 else None
    return mfu, _MEMORY.search(text, of_memory) if of_memory >= 0 else None


class DeviceLines:
    """Collects such values from the lines of one log."""

    def __init__(self) -> None:
        self._mfu: list[float] = []
        self._memory = 0.0
        self._retries, self._since_start = 0, 0
        self._skipped = 0, 0

    def take(self, line: LogLine) -> None:
        """Read the next line."""
        text = line.text
        mfu, memory = _rates(text)
        self.note(
            [one_float(mfu["after"] or mfu["of"] or mfu["before"]) or 0.0] if mfu else [],
            [one_float(memory["percent"]) or 0.0] if memory else [],
        )
        if ", skipped=" in text and (skipped := _SKIPPED.search(text)) is not None:
            self._skipped = one_int(skipped["skipped"]), one_int(skipped["steps"])
        if "alloca" in text and (retries := _RETRIES.search(text)) is not None:
            number = one_int(retries["all"] or retries["more"])
            if retries["more"]:
                self._retries += number
                return
            self._retries += number - (self._since_start if number >= self._since_start else 0)
            self._since_start = number

    def note(self, mfu: Sequence[float], memory: Sequence[float]) -> None:
        """Note shares in per cent."""
        self._mfu.extend(mfu)
        self._memory = max(self._memory, *memory, 0.0)

    def devices(self) -> LoggedDevices:
        """The values of the whole log."""
        mfu = float(np.median(self._mfu)) / 100 if self._mfu else None
        return LoggedDevices(mfu, self._memory / 100 or None, self._retries, self._skipped)


_CHANNEL = re.compile(
    r"NCCL INFO Channel \d{1,4}(?:/\d{1,4})? : (?P<a>\d{1,7})\[[^\]]{0,16}\] -> (?P<b>\d{1,7})\[[^\]]{0,16}\]"
    r"(?: \[\w{1,12}\])? via (?P<kind>P2P|SHM|NET/[A-Za-z]+)"
)
_WHY = re.compile(
    r"NCCL INFO (?P<why>NET/IB ?: No device found"
    r"|NCCL_(?:IB_DISABLE|P2P_DISABLE|P2P_LEVEL|SHM_DISABLE|NET|TOPO_FILE) set by environment to \S{1,200})"
)
_BANDWIDTH = re.compile(r"# Avg bus bandwidth\s{0,8}: (?P<value>\d[\d.]{0,12})")
_WARNING = re.compile(r"NCCL WARN (?P<said>.{1,200})")

OF_TRANSPORTS = ("NCCL", "bus bandwidth")
WORDS = (
    *("NCCL INFO Channel ", "NCCL INFO NET/IB", " set by environment to ", "NCCL WARN ", "# Avg bus bandwidth"),
    *(", skipped=", "allocation retries", "allocator cache flu"),
)


class TransportLines:
    """Collects such lines of one log."""

    def __init__(self) -> None:
        self._channels: Counter[str] = Counter()
        self._ranks: set[int] = set()
        self._why: dict[str, None] = {}
        self._warnings: list[str] = []
        self._bandwidth: float | None = None

    def take(self, line: LogLine) -> None:
        """Read the next line."""
        text = line.text
        if "NCCL INFO" in text:
            if (channel := _CHANNEL.search(text)) is not None:
                self._channels[channel["kind"]] += 1
                self._ranks.update((int(channel["a"]), int(channel["b"])))
            elif (why := _WHY.search(text)) is not None:
                self._why[why["why"]] = None
        elif "NCCL WARN" in text and (warning := _WARNING.search(text)) is not None:
            self._warnings.append(warning["said"])
        elif "Avg bus bandwidth" in text and (measured := _BANDWIDTH.search(text)) is not None:
            self._bandwidth = one_float(measured["value"])

    @property
    def are_there(self) -> bool:
        """True where NCCL names a channel, or warns."""
        return bool(self._channels or self._warnings)

    def transports(self) -> LoggedTransports:
        """The lines of the whole log."""
        return LoggedTransports(
            dict(self._channels), len(self._ranks), tuple(self._why), tuple(self._warnings), self._bandwidth
        )
