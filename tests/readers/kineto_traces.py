"""Kineto traces of given events, read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kineto_text as kt

from ddprof.model import RankTrace
from ddprof.readers import Source, read


def trace_of(path: Path, events: list[Any], layout: str = "compact", header: dict[str, Any] | None = None) -> RankTrace:
    return read(Source(str(kt.write(path, events, layout, header)), "kineto"))


def times(trace: RankTrace) -> list[tuple[str, int, int, int]]:
    columns = (trace.events[c].tolist() for c in ("name", "ts_ns", "dur_ns", "correlation"))
    return [(trace.strings[n], ts, dur, c) for n, ts, dur, c in zip(*columns, strict=True)]
