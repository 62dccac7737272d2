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
    ranks = tuple(replace(f, has_base_time=True, memory={}) for f in straggler.job.ranks)
    return replace(straggler.job, ranks=ranks)


def _write(folder: Path, lines: list[Any]) -> None:
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    (folder / "host.node-a.7.counters.jsonl").write_text(text, encoding="utf-8")


def _sample(at_ns: int, second: int) -> dict[str, Any]:
    return {
        "at_ns": at_ns,
        "cpu": {"jiffies": {"user": 30 * second, "idle": 70 * second}},
        "network": {"eth0": {"received_bytes": second * 2_000_000, "sent_bytes": second * 1_000_000}},
        "memory": {"total_bytes": 8 * 2**30, "available_bytes": 6 * 2**30},
        "gpus": [{"index": 1, "power_mw": 250_000, "sm_clock_mhz": 1410}],
    }


def test_samples_of_the_traced_time_are_tracks(job: JobFacts, tmp_path: Path) -> None:
    lines: list[Any] = [_sample(job.origin_ns + n * SECOND, n) for n in range(-5, 9)]
    _write(tmp_path, [*lines, '{"at_ns": 12', "[]", '{"at_ns": "x"}'])
    tracks = {t["label"]: t for t in counter_tracks(job, str(tmp_path), 0, 3 * SECOND)}
    assert tracks["node-a GPU 1 power"]["values"][0] == 250 and tracks["node-a GPU 1 power"]["unit"] == "W"
    assert tracks["node-a GPU 1 clock"]["values"][0] == 1410 and tracks["node-a host memory"]["values"][0] == 2
    assert set(tracks["node-a cores busy"]["values"]) == {30.0}
    assert set(tracks["node-a network eth0"]["values"]) == {3.0}
    at_us = tracks["node-a cores busy"]["at_us"]
    assert at_us[0] <= 0 and 3e6 <= at_us[-1] <= 4e6


def test_a_long_run_has_counters_to_its_end(job: JobFacts, tmp_path: Path) -> None:
    _write(tmp_path, [_sample(job.origin_ns + n * SECOND, n) for n in range(2 * MAX_SAMPLES)])
    tracks = {t["label"]: t for t in counter_tracks(job, str(tmp_path), 0, 2 * MAX_SAMPLES * SECOND)}
    busy = tracks["node-a cores busy"]
    assert len(busy["values"]) <= MAX_SAMPLES and set(busy["values"]) == {30.0}
    assert busy["at_us"][-1] / 1e6 > 2 * MAX_SAMPLES - 3


def test_nothing_recorded_is_no_track_and_a_restart_no_negative_rate(job: JobFacts, tmp_path: Path) -> None:
    assert counter_tracks(job, "", 0, SECOND) == [] == counter_tracks(job, str(tmp_path), 0, SECOND)
    _write(tmp_path, [_sample(job.origin_ns + 3600 * SECOND, 1)])
    assert counter_tracks(job, str(tmp_path), 0, SECOND) == []  # of another hour
    _write(tmp_path, [_sample(job.origin_ns, 50), _sample(job.origin_ns + SECOND, 1)])
    labels = [t["label"] for t in counter_tracks(job, str(tmp_path), 0, 3 * SECOND)]
    assert "node-a GPU 1 clock" in labels and "node-a network eth0" not in labels


def test_memory_of_a_rank_is_on_the_runs_clock(job: JobFacts) -> None:
    curve = {"at_ns": [int(job.ranks[0].steps["start_ns"][0])], "allocated_bytes": [2**30], "reserved_bytes": [None]}
    job = replace(job, ranks=(replace(job.ranks[0], memory={"curve": curve}), *job.ranks[1:]))
    (track,) = counter_tracks(job, "", 0, SECOND)
    assert track["label"] == "rank 0 memory allocated" and track["values"] == [1.0]
    assert track["at_us"][0] == pytest.approx((curve["at_ns"][0] - job.clock.offset_ns(0) - job.origin_ns) / 1e3)


def test_tracks_or_that_there_are_none(page: Page) -> None:
    page.visit("/timeline")
    page.wait("return ddprof.timeline && ddprof.timeline.root.dataset.counters")
    assert page.js("return ddprof.timeline.counterBox.textContent") == "no counters"
    rows = page.js(ROWS)
    page.js("""
      const t = ddprof.timeline;
      t.counters = [{ label: "node-a GPU 0 power", unit: "W", rank: null, at_us: [0, 10000], values: [100, 250] }];
      t.offerCounters(); t.layout(); t.painter.paint();""")
    assert page.js(ROWS) == rows + 2
    assert page.js("return ddprof.timeline.rows.at(-1).label") == "node-a GPU 0 power"
    page.menu().find_element("xpath", "//label[contains(., 'counters')]/input").click()
    assert page.js(ROWS) == rows and page.trouble() == []
