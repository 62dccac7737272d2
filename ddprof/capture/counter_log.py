"""Where monitor mode keeps a host's counters: bounded, however long the job runs.

Two files of JSON lines. One sample per second for the last one to two hours, and for the last week one line per minute
with what the seconds came to. Both are cut by writing what is kept under a temporary name and renaming it, so that a
reader finds whole lines at any moment.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ddprof.capture.layout import COUNTERS_BY_MINUTE_SUFFIX, COUNTERS_SUFFIX

KEPT_SECONDS = 3_600  # lines; cut back to this at twice as many
KEPT_MINUTES = 7 * 24 * 60  # lines; cut back to this a day later
_MINUTES_SLACK = 24 * 60
_MINUTE_NS = 60_000_000_000
_CUMULATIVE = {"jiffies", "network", "infiniband"}  # counters: their last value says all, a mean says nothing


class CounterLog:
    """Both files of one host. `stem` is their path without suffix. Methods raise OSError where they cannot write."""

    def __init__(self, stem: Path) -> None:
        self._seconds = _Lines(stem.with_name(stem.name + COUNTERS_SUFFIX), KEPT_SECONDS, 2 * KEPT_SECONDS)
        self._minutes = _Lines(
            stem.with_name(stem.name + COUNTERS_BY_MINUTE_SUFFIX), KEPT_MINUTES, KEPT_MINUTES + _MINUTES_SLACK
        )
        self._minute: list[dict[str, Any]] = []  # the samples of the minute under way

    def add(self, sample: dict[str, Any]) -> None:
        """Append one sample of `HostCounters`; a minute that it ends is summed up."""
        self._seconds.append(sample)
        minute = self._minute
        if minute and sample["at_ns"] // _MINUTE_NS != minute[0]["at_ns"] // _MINUTE_NS:
            self._minute = []
            self._minutes.append(summed_up(minute))
        self._minute.append(sample)


def summed_up(samples: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One line for some samples (at least one): `from_ns`, `to_ns`, `samples`, and the keys of a sample.

    A measured number becomes [min, mean, max], a cumulative counter its last value, a list of reasons the number of
    samples with each.
    """
    times = [sample["at_ns"] for sample in samples]
    rest = [{key: value for key, value in sample.items() if key != "at_ns"} for sample in samples]
    return {"from_ns": times[0], "to_ns": times[-1], "samples": len(samples), **_of_mappings(rest, cumulative=False)}


def _of_mappings(found: Sequence[dict[str, Any]], cumulative: bool) -> dict[str, Any]:
    keys = {key: None for mapping in found for key in mapping}  # a set that keeps the order
    return {
        key: _of_values([m[key] for m in found if m.get(key) is not None], cumulative or key in _CUMULATIVE, key)
        for key in keys
    }


def _of_values(values: Sequence[Any], cumulative: bool, key: str) -> Any:
    if not values:
        return None
    last = values[-1]
    if isinstance(last, dict):
        return _of_mappings(values, cumulative)
    if key == "gpus":
        devices = {gpu["index"]: None for gpus in values for gpu in gpus}
        return [_of_mappings([g for gpus in values for g in gpus if g["index"] == at], False) for at in devices]
    if isinstance(last, list | tuple):
        return dict(Counter(reason for reasons in values for reason in reasons))
    if cumulative or key == "index" or not isinstance(last, int | float):
        return last
    return [min(values), round(sum(values) / len(values), 3), max(values)]


class _Lines:
    """A file of JSON lines that is cut back to its last `kept` whenever it reaches `limit` lines."""

    def __init__(self, path: Path, kept: int, limit: int) -> None:
        self._path, self._kept, self._limit = path, kept, limit
        self._count = 0

    def append(self, line: dict[str, Any]) -> None:
        with self._path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(line, separators=(",", ":")) + "\n")
        self._count += 1
        if self._count >= self._limit:
            self._cut()

    def _cut(self) -> None:
        lines = self._path.read_bytes().splitlines(keepends=True)[-self._kept :]
        temporary = self._path.with_name(f".{self._path.name}.tmp")
        try:
            temporary.write_bytes(b"".join(lines))
            os.replace(temporary, self._path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        self._count = len(lines)
