"""Counter tracks: what the files of the hosts hold, on the run's clock, and nothing where nothing was recorded."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ddprof.analyzers.job.model import JobFacts
from ddprof.dashboard.runs.counters import MAX_SAMPLES, counter_tracks
from ddprof.dashboard.runs.open_run import OpenRun
from tests.dashboard.browsing import Page

SECOND = 10**9
ROWS = "return ddprof.timeline.rows.length"


@pytest.fixture
def job(straggler: OpenRun) -> JobFacts:
    job = straggler.job
    return replace(job, ranks=tuple(replace(f, has_base_time=True, memory={}) for f in job.ranks))


def _tracks(job: JobFacts, folder: Path, seconds: int, *lines: str) -> dict[str, Any]:
    """Tracks of so many seconds of the job, by label, where a host has written these lines."""
    (folder / "host.node-a.7.counters.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return {track["label"]: track for track in counter_tracks(job, str(folder), 0, seconds * SECOND)}


def _sample(job: JobFacts, second: int, counted: int) -> str:
    """A line of that second of the job, its counters at so many seconds' worth."""
    read = {
        "at_ns": job.origin_ns + second * SECOND,
        "cpu": {"jiffies": {"user": 30 * counted, "idle": 70 * counted}},
        "network": {"eth0": {"received_bytes": counted * 2_000_000, "sent_bytes": counted * 1_000_000}},
        "memory": {"total_bytes": 8 * 2**30, "available_bytes": 6 * 2**30},
        "gpus": [{"index": 1, "power_mw": 250_000, "sm_clock_mhz": 1410}],
    }
    return json.dumps(read)


def test_samples_of_the_traced_time_are_tracks(job: JobFacts, tmp_path: Path) -> None:
    whole = [_sample(job, n, n) for n in range(-5, 9)]
    told = _tracks(job, tmp_path, 3, *whole, '{"at_ns": 12', "[]", '{"at_ns": "x"}')
    assert told["node-a GPU 1 power"]["values"][0] == 250 and told["node-a GPU 1 power"]["unit"] == "W"
    assert told["node-a GPU 1 clock"]["values"][0] == 1410 and told["node-a host memory"]["values"][0] == 2
    assert set(told["node-a cores busy"]["values"]) == {30.0} and set(told["node-a network eth0"]["values"]) == {3.0}
    at_us = told["node-a cores busy"]["at_us"]
    assert at_us[0] <= 0 and 3e6 <= at_us[-1] <= 4e6


def test_a_long_run_has_counters_to_its_end(job: JobFacts, tmp_path: Path) -> None:
    lines = [_sample(job, n, n) for n in range(2 * MAX_SAMPLES)]
    busy = _tracks(job, tmp_path, len(lines), *lines)["node-a cores busy"]
    assert len(busy["values"]) <= MAX_SAMPLES and set(busy["values"]) == {30.0}
    assert busy["at_us"][-1] / 1e6 > 2 * MAX_SAMPLES - 3


def test_nothing_recorded_is_no_track_and_a_restart_no_negative_rate(job: JobFacts, tmp_path: Path) -> None:
    assert counter_tracks(job, "", 0, SECOND) == [] == counter_tracks(job, str(tmp_path), 0, SECOND)
    assert _tracks(job, tmp_path, 1, _sample(job, 3600, 1)) == {}  # of another hour
    labels = _tracks(job, tmp_path, 3, _sample(job, 0, 50), _sample(job, 1, 1))
    assert "node-a GPU 1 clock" in labels and "node-a network eth0" not in labels


def test_memory_of_a_rank_is_on_the_runs_clock(job: JobFacts) -> None:
    curve = {"at_ns": [int(job.ranks[0].steps["start_ns"][0])], "allocated_bytes": [2**30], "reserved_bytes": [None]}
    job = replace(job, ranks=(replace(job.ranks[0], memory={"curve": curve}), *job.ranks[1:]))
    (track,) = counter_tracks(job, "", 0, SECOND)
    assert track["label"] == "rank 0 memory allocated" and track["values"] == [1.0]
    assert track["at_us"][0] == pytest.approx((curve["at_ns"][0] - job.clock.offset_ns(0) - job.origin_ns) / 1e3)


def test_tracks_or_that_there_are_none(timeline: Page) -> None:
    timeline.wait("return ddprof.timeline.root.dataset.counters")
    assert timeline.js("return ddprof.timeline.counterBox.textContent") == "no counters"
    rows = timeline.js(ROWS)
    timeline.js("""
      const t = ddprof.timeline;
      t.counters = [{ label: "node-a GPU 0 power", unit: "W", rank: null, at_us: [0, 10000], values: [100, 250] }];
      t.offerCounters(); t.layout(); t.painter.paint();""")
    assert timeline.js(ROWS) == rows + 2
    assert timeline.js("return ddprof.timeline.rows.at(-1).label") == "node-a GPU 0 power"
    timeline.press("counters")
    assert timeline.js(ROWS) == rows
