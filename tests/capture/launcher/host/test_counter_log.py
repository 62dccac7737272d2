"""Counters of monitor mode: what a minute comes to, and files that stop growing."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ddprof.capture.launcher.host import counter_log
from ddprof.capture.launcher.host.counter_log import CounterLog, summed_up

SECOND_NS = 1_000_000_000
BEGIN_NS = 1_700_000_040 * SECOND_NS  # a whole minute


def sample(second: int) -> dict[str, Any]:
    """Counters of a host with 8 GPUs."""
    reasons = ["power cap"] if second % 2 else []
    gpu = {"power_mw": 300_000 + second, "sm_clock_mhz": 1980, "busy_percent": 97, "used_bytes": 60_123_456_789}
    return {
        "at_ns": BEGIN_NS + second * SECOND_NS,
        "cpu": {"jiffies": {"user": 100 * second, "idle": 900 * second}, "load_1m": 2.0 + second},
        "memory": {"total_bytes": 10, "available_bytes": 9 - second % 3},
        "network": {"eth0": {"received_bytes": 5 * second, "sent_bytes": 1, "drops": 0}},
        "gpus": [{"index": index, **gpu, "throttled_by": reasons} for index in range(8)],
    }


def keep(monkeypatch: pytest.MonkeyPatch, seconds: int, minutes: int, slack: int) -> None:
    for name, value in {"KEPT_SECONDS": seconds, "KEPT_MINUTES": minutes, "_MINUTES_SLACK": slack}.items():
        monkeypatch.setattr(counter_log, name, value)


def lines(folder: Path, suffix: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"host.h.1{suffix}").read_text().splitlines()]


def test_a_minute_keeps_extremes_means_last_counts_and_reasons_of_what_samples_have() -> None:
    minute = summed_up([sample(second) for second in range(60)])
    assert (minute["from_ns"], minute["to_ns"], minute["samples"]) == (BEGIN_NS, BEGIN_NS + 59 * SECOND_NS, 60)
    assert minute["cpu"] == {"jiffies": {"user": 5900, "idle": 53100}, "load_1m": [2.0, 31.5, 61.0]}
    assert minute["memory"]["available_bytes"] == [7, 8.0, 9]
    assert minute["network"]["eth0"]["received_bytes"] == 295
    assert [gpu["index"] for gpu in minute["gpus"]] == list(range(8))
    assert minute["gpus"][3]["power_mw"] == [300_000, 300_029.5, 300_059]
    assert minute["gpus"][3]["throttled_by"] == {"power cap": 30}
    first, second = sample(0), sample(1)
    del first["gpus"]
    second["cpu"]["load_1m"] = None
    minute = summed_up([first, second])
    assert minute["gpus"][0]["power_mw"] == [300_001, 300_001.0, 300_001]
    assert minute["cpu"]["load_1m"] == [2.0, 2.0, 2.0]


def test_both_files_stop_growing_and_keep_the_newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(monkeypatch, seconds=100, minutes=10, slack=5)
    log, longest = CounterLog(tmp_path / "host.h.1"), 0
    for second in range(1500):
        log.add(sample(second))
        longest = max(longest, (tmp_path / "host.h.1.counters.jsonl").stat().st_size)
    kept = lines(tmp_path, ".counters.jsonl")
    assert [line["at_ns"] for line in kept] == [BEGIN_NS + s * SECOND_NS for s in range(1500 - len(kept), 1500)]
    assert 100 <= len(kept) < 200 and longest < 200 * 1.1 * len(json.dumps(sample(1499)))
    minutes = lines(tmp_path, ".counters-by-minute.jsonl")
    assert 10 <= len(minutes) < 15 and [line["samples"] for line in minutes] == [60] * len(minutes)
    assert minutes[-1]["to_ns"] == BEGIN_NS + 1439 * SECOND_NS
    names = {"host.h.1.counters-by-minute.jsonl", "host.h.1.counters.jsonl"}
    assert {path.name for path in tmp_path.iterdir()} == names


NO_PROCESS = 2**22 + 7  # above what Linux gives


def started_again(folder: Path, pid: int, seconds: range) -> None:
    """One start of the job: a launcher with `pid` that logs for some seconds."""
    log = CounterLog(folder / f"host.h.{pid}")
    for second in seconds:
        log.add(sample(second))


@pytest.mark.parametrize("pids", [[1] * 12, range(NO_PROCESS, NO_PROCESS + 12)], ids=["same pid", "other pids"])
def test_the_bound_holds_over_restarts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pids: Sequence[int]) -> None:
    keep(monkeypatch, seconds=200, minutes=4, slack=2)
    for start, pid in enumerate(pids):
        started_again(tmp_path, pid, range(start * 130, start * 130 + 130))
        (seconds,) = tmp_path.glob("*.counters.jsonl")
        (minutes,) = tmp_path.glob("*.counters-by-minute.jsonl")
        kept = [json.loads(line)["at_ns"] for line in seconds.read_text().splitlines()]
        ended = start * 130 + 130
        assert kept == [BEGIN_NS + second * SECOND_NS for second in range(ended - len(kept), ended)]
        assert min(ended, 200) <= len(kept) < 400
        times = [json.loads(line)["to_ns"] for line in minutes.read_text().splitlines()]
        assert times == sorted(times) and min(2 * start + 1, 4) <= len(times) < 6
    assert len(list(tmp_path.iterdir())) == 2


def test_a_start_leaves_files_of_others_and_half_lines_alone(tmp_path: Path) -> None:
    started_again(tmp_path, NO_PROCESS, range(3))
    killed = tmp_path / f"host.h.{NO_PROCESS}.counters.jsonl"
    killed.write_bytes(killed.read_bytes() + b'{"at_ns":17')
    other_host, running = tmp_path / "host.g.7.counters.jsonl", tmp_path / f"host.h.{os.getpid()}.counters.jsonl"
    for path in (other_host, running):
        path.write_text(json.dumps(sample(0)) + "\n")
    started_again(tmp_path, 1, range(3, 6))
    kept = [line["at_ns"] for line in lines(tmp_path, ".counters.jsonl")]
    assert kept == [BEGIN_NS + second * SECOND_NS for second in range(6)] and not killed.exists()
    for path in (other_host, running):
        assert len(path.read_text().splitlines()) == 1
