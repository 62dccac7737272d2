"""Everything of a Kineto file that is not an event: its profiler, devices and start."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import islice
from typing import Any

from ddprof.model import Device
from ddprof.readers.numbers import LARGEST_RANK, MAX_NS, one_int, one_rank
from ddprof.tables import NULL

_PARSER = json.JSONDecoder(strict=False)
# Beyond this many bytes values are looked up by name, so that no others become objects: the groups of ten thousand
# ranks take 1 MB.
_MOST_BYTES = 4 << 20
_LONGEST_VALUE = 1 << 20  # bytes of one value, where values are looked up
_SPELLINGS = 3  # how often a name is looked up: it may occur in other values before
_KEPT = (
    *("schemaVersion", "record_shapes", "with_stack", "with_flops", "with_modules", "profile_memory"),
    *("displayTimeUnit", "cupti_version", "cuda_runtime_version", "cuda_driver_version", "roctracer_version"),
    *("hip_runtime_version", "traceName", "hip_driver_version", "trace_id", "host_name", "ddprof"),
)
_USED = (*_KEPT, "distributedInfo", "deviceProperties", "baseTimeNanoseconds", "hostname", "INFO")
_STOPPED_EARLY = re.compile(r"CUPTI stopped early\? = 1")


def parse_header(header: bytes, footer: bytes) -> tuple[dict[str, Any], bool]:
    """The top-level values around the event list, and whether they are complete.

    `header` ends just after the list's opening bracket and `footer` begins just after its closing one. Where the text
    is damaged every value that still parses is returned.
    """
    if not header:
        return {}, True
    text = (header + b"]" + (footer.strip() or b"}")).decode("utf-8", "replace")
    if len(text) > _MOST_BYTES:
        return _used_values(text), bool(footer.strip())
    try:
        value = _PARSER.decode(text)
    except (ValueError, RecursionError):
        return _used_values(text), False
    return (value, bool(footer.strip())) if isinstance(value, dict) else ({}, False)


def _used_values(text: str) -> dict[str, Any]:
    """The used values, each looked up by name."""
    values: dict[str, Any] = {}
    for name in _USED:
        for match in islice(re.finditer(rf'"{name}"\s*:\s*', text), _SPELLINGS):
            try:
                values[name], _ = _PARSER.raw_decode(text[match.end() : match.end() + _LONGEST_VALUE])
                break
            except (ValueError, RecursionError):
                continue
    return values


class Header:
    """Typed access to the top-level values; every oddity reads as missing."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values
        info = values.get("distributedInfo")
        self.distributed: Mapping[str, Any] = info if isinstance(info, Mapping) else {}

    @property
    def rank(self) -> int | None:
        """The rank that the profiler states; None where it is missing, negative, or implausibly large."""
        return one_rank(self.distributed.get("rank"))

    @property
    def world_size(self) -> int | None:
        """Ranks in the job, as the profiler states it."""
        return one_rank(self.distributed.get("world_size")) or None

    @property
    def unbelievable(self) -> list[str]:
        """Names of stated but impossible values among rank, world size and clock base."""
        stated = [name for name in ("rank", "world_size") if one_int(self.distributed.get(name)) > LARGEST_RANK]
        base = self.values.get("baseTimeNanoseconds")
        return [*stated, "baseTimeNanoseconds"] if base is not None and self.base_time_ns is None else stated

    @property
    def backend(self) -> str | None:
        """The communication backend, as the profiler states it."""
        value = self.distributed.get("backend")
        return value if isinstance(value, str) and value not in ("", "undefined") else None

    @property
    def base_time_ns(self) -> int | None:
        """Offset from event times to unix time; None where it is missing or invalid."""
        base = _natural(self.values.get("baseTimeNanoseconds"))
        return base if base is not None and base < MAX_NS else None

    @property
    def host(self) -> str | None:
        """The host's name, where the profiler writes it."""
        value = self.values.get("host_name") or self.values.get("hostname")
        return value if isinstance(value, str) and value else None

    @property
    def stopped_early(self) -> bool:
        """True where the device tracer reports that it ran out of buffers."""
        return _STOPPED_EARLY.search(str(self.values.get("INFO", ""))) is not None

    def device(self, index: int | None) -> Device:
        """The accelerator with this index (the first one where no event names one); kind "cpu" where there is none."""
        properties = self.values.get("deviceProperties")
        devices = [d for d in properties if isinstance(d, Mapping)] if isinstance(properties, list) else []
        if not devices:
            return Device("cpu")
        chosen = next((d for d in devices if index is not None and one_int(d.get("id")) == index), devices[0])
        major, minor = _natural(chosen.get("computeMajor")), _natural(chosen.get("computeMinor"))
        name = chosen.get("name")
        return Device(
            kind=_device_kind(chosen),
            name=str(name) if name else None,
            total_memory_bytes=_natural(chosen.get("totalGlobalMem")),
            compute_capability=(major, minor) if major is not None and minor is not None else None,
        )

    def kept(self) -> dict[str, Any]:
        """The small values worth keeping in `RankTrace.top`."""
        return {key: self.values[key] for key in _KEPT if key in self.values}


def _natural(value: Any) -> int | None:
    number = one_int(value)
    return number if number != NULL and number >= 0 else None


def _device_kind(properties: Mapping[str, Any]) -> str:
    name = str(properties.get("name", "")).lower()
    if "amd" in name or "radeon" in name or "instinct" in name or one_int(properties.get("warpSize")) == 64:
        return "rocm"
    if "ascend" in name or "npu" in name:
        return "npu"
    if "intel" in name or "xpu" in name or "ponte" in name:
        return "xpu"
    if "artemis" in name or "mtia" in name:
        return "mtia"
    return "cuda"
