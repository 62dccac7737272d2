"""Counters of monitor mode: what a minute comes to, and files that stop growing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ddprof.capture import counter_log
from ddprof.capture.counter_log import CounterLog, summed_up

SECOND_NS = 1_000_000_000
BEGIN_NS = 1_700_000_040 * SECOND_NS  # a whole minute


def sample(second: int) -> dict[str, Any]:
    """What a host with 8 GPUs writes."""
    reasons = ["power cap"] if second % 2 else []
    gpu = {"power_mw": 300_000 + second, "sm_clock_mhz": 1980, "busy_percent": 97, "used_bytes": 60_123_456_789}
    return {
        "at_ns": BEGIN_NS + second * SECOND_NS,
        "cpu": {"jiffies": {"user": 100 * second, "idle": 900 * second}, "load_1m": 2.0 + second},
        "memory": {"total_bytes": 10, "available_bytes": 9 - second % 3},
        "network": {"eth0": {"received_bytes": 5 * second, "sent_bytes": 1, "drops": 0}},
        "gpus": [{"index": index, **gpu, "throttled_by": reasons} for index in range(8)],
    }


def lines(folder: Path, suffix: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"host.h.1{suffix}").read_text().splitlines()]


def test_a_minute_keeps_extremes_means_last_counts_and_reasons() -> None:
    minute = summed_up([sample(second) for second in range(60)])
    assert (minute["from_ns"], minute["to_ns"], minute["samples"]) == (BEGIN_NS, BEGIN_NS + 59 * SECOND_NS, 60)
    assert minute["cpu"] == {"jiffies": {"user": 5900, "idle": 53100}, "load_1m": [2.0, 31.5, 61.0]}
    assert minute["memory"]["available_bytes"] == [7, 8.0, 9]
    assert minute["network"]["eth0"]["received_bytes"] == 295
    assert [gpu["index"] for gpu in minute["gpus"]] == list(range(8))
    assert minute["gpus"][3]["power_mw"] == [300_000, 300_029.5, 300_059]
    assert minute["gpus"][3]["throttled_by"] == {"power cap": 30}


def test_a_minute_holds_what_only_some_samples_have() -> None:
    first, second = sample(0), sample(1)
    del first["gpus"]
    second["cpu"]["load_1m"] = None
    minute = summed_up([first, second])
    assert minute["gpus"][0]["power_mw"] == [300_001, 300_001.0, 300_001]
    assert minute["cpu"]["load_1m"] == [2.0, 2.0, 2.0]


def test_both_files_stop_growing_and_keep_the_newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counter_log, "KEPT_SECONDS", 100)
    monkeypatch.setattr(counter_log, "KEPT_MINUTES", 10)
    monkeypatch.setattr(counter_log, "_MINUTES_SLACK", 5)
    log = CounterLog(tmp_path / "host.h.1")
    longest = 0
    for second in range(1500):
        log.add(sample(second))
        longest = max(longest, (tmp_path / "host.h.1.counters.jsonl").stat().st_size)
    kept = lines(tmp_path, ".counters.jsonl")
    assert [line["at_ns"] for line in kept] == [BEGIN_NS + s * SECOND_NS for s in range(1500 - len(kept), 1500)]
    assert 100 <= len(kept) < 200
    assert longest < 200 * 1.1 * len(json.dumps(sample(1499)))
    minutes = lines(tmp_path, ".counters-by-minute.jsonl")
    assert 10 <= len(minutes) < 15
    assert [line["samples"] for line in minutes] == [60] * len(minutes)
    assert minutes[-1]["to_ns"] == BEGIN_NS + 1439 * SECOND_NS
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "host.h.1.counters-by-minute.jsonl",
        "host.h.1.counters.jsonl",
    ]
