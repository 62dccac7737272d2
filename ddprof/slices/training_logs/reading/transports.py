"""Transports by which NCCL joins ranks, from its own lines at NCCL_DEBUG=INFO, and what it warns of.

host:986:1254 [6] NCCL INFO Channel 00/0 : 6[6] -> 38[6] [send] via NET/IB/1/GDRDMA
host:986:1254 [6] NCCL INFO NCCL_P2P_DISABLE set by environment to 1
# Avg bus bandwidth    : 178.078
"""

from __future__ import annotations

import re
from collections import Counter

from ddprof.readers.numbers import one_float
from ddprof.slices.training_logs.model import LoggedTransports

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


class TransportLines:
    """Collects such lines of one log."""

    def __init__(self) -> None:
        self._channels: Counter[str] = Counter()
        self._ranks: set[int] = set()
        self._why: dict[str, None] = {}
        self._warnings: list[str] = []
        self._bandwidth: float | None = None

    def take(self, text: str) -> None:
        """Read the next line."""
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

    def transports(self) -> LoggedTransports:
        """The lines of the whole log."""
        return LoggedTransports(
            dict(self._channels), len(self._ranks), tuple(self._why), tuple(self._warnings), self._bandwidth
        )
