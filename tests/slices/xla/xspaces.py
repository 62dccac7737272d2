"""XPlane profiles made by hand, message by message, with the planes and lines that TPUs and GPUs have."""

from typing import Any

from ddprof.report.export.protobuf import varint
from ddprof.slices.xla.messages import _messages

START_NS = 1_790_000_000_000_000_000


def space(*planes: Any) -> bytes:
    parts = [plane.SerializeToString() for plane in planes]
    return b"".join(b"\n" + varint(len(part)) + part for part in parts)


class PlaneMaker:
    def __init__(self, name: str) -> None:
        self.plane = _messages()(name=name.encode())
        self._names: dict[str, int] = {}
        self._stats: dict[str, int] = {}

    def line(self, name: str, events: list[tuple[Any, ...]], number: int = 0) -> "PlaneMaker":
        """Events as (name, start us, length us, {stat: value}); a value in bytes is stored as the name of a stat."""
        line = self.plane.lines.add(id=number, name=name.encode(), timestamp_ns=START_NS)
        for text, start_us, dur_us, *stats in events:
            key = self._key(self.plane.event_metadata, self._names, text)
            event = line.events.add(metadata_id=key, offset_ps=start_us * 10**6, duration_ps=dur_us * 10**6)
            for stat, value in (stats[0] if stats else {}).items():
                at = self._key(self.plane.stat_metadata, self._stats, stat)
                event.stats.add(metadata_id=at, **self._given(value))
        return self

    def _given(self, value: Any) -> dict[str, Any]:
        if isinstance(value, bytes):
            return {"ref_value": self._key(self.plane.stat_metadata, self._stats, value.decode())}
        return {"str_value": value.encode()} if isinstance(value, str) else {"int64_value": value}

    def _key(self, table: Any, known: dict[str, int], name: str) -> int:
        if name not in known:
            known[name] = len(known) + 1
            table.add(key=known[name]).value.name = name.encode()
        return known[name]
