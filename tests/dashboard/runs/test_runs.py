"""Runs that are served: names tell them apart, links hold, those that change are read again, tunings belong to them.

Counter tracks: what the files of the hosts hold, on the run's clock, and nothing where nothing was recorded.
"""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from ddprof.analyzers.job.model import JobFacts
from ddprof.dashboard.runs import served, tunings
from ddprof.dashboard.runs.counters import MAX_SAMPLES, counter_tracks
from ddprof.dashboard.runs.names import named_run, run_ids, run_names
from ddprof.dashboard.runs.open_run import OpenRun, load
from ddprof.dashboard.runs.served import Runs
from ddprof.dashboard.runs.tunings import tunings_of
from ddprof.dashboard.runs.view import view_of
from ddprof.errors import NoUsableInput
from ddprof.readers.side_files.manifests import Manifest
from ddprof.report.json.contract import to_contract
from ddprof.report.model import Report
from ddprof.slices.live.exhibits import hosts_now
from ddprof.trials.document import FILE, write_document
from tests.dashboard.browsing import Page
from tests.dashboard.made import alone
from tests.dashboard.tuned import ANSWER, COMMAND, CWD, run_of_command, state

LAUNCH = Manifest("torchrun --nproc-per-node=2 acme_train.py --name 'two words'", CWD)
SECOND, ROWS = 10**9, "return ddprof.timeline.rows.length"
OLDER, NEWER = "20260101T000000Z-tune-train", "20260201T000000Z-tune-train"


def _read_from(report: Report, folder: str, name: str = "traces") -> Report:
    return replace(report, run=replace(report.run, name=name, paths=(f"{folder}/rank0.json.gz",)))


def test_folders_tell_runs_of_one_name_apart(straggler_report: Report) -> None:
    runs = [_read_from(straggler_report, f"/data/{job}/traces") for job in ("mnist", "gpt")]
    assert run_names(runs) == ["mnist/traces", "gpt/traces"]
    assert run_names([runs[0], _read_from(straggler_report, "/data/gpt/traces", "gpt")]) == ["traces", "gpt"]
    assert run_names([runs[0], runs[0]]) == ["data/mnist/traces (1)", "data/mnist/traces (2)"]


def test_a_link_names_the_same_run_in_any_order_also_of_two_readings_and_on_pages(straggler_report: Report) -> None:
    one, other = (_read_from(straggler_report, f"/data/{job}/traces") for job in ("mnist", "gpt"))
    there, back = run_ids([one, other]), run_ids([other, one])
    assert there == back[::-1] and len(set(there)) == 2 and named_run(there[0], [other, one]) == 1
    assert named_run("1", [one, other]) == 1 and named_run("nosuch", [one, other]) is None
    longer = replace(one, steps=replace(one.steps, count=9, wall_us=1.0))
    assert run_ids([longer]) == there[:1]  # a job that still writes keeps its link
    fast = replace(straggler_report, steps=replace(straggler_report.steps, wall_us=1.0))
    assert run_ids([fast, straggler_report]) == run_ids([straggler_report, fast])[::-1]
    runs = [OpenRun(one), OpenRun(other)]
    view = view_of(runs, {"run": "1"})
    assert view.opened is runs[1] and view.link("/ranks") == f"/ranks?run={view.ids[1]}"
    assert view_of(runs[::-1], {"run": view.ids[1]}).opened is runs[1]
    assert alone(runs[0]).link("/ranks") == "/ranks"


def test_saved_reports_hold_no_events_and_a_session_the_job_of_the_report(tmp_path: Path, straggler: OpenRun) -> None:
    report, job = straggler.report, straggler.job
    file = tmp_path / "saved.json"
    file.write_text(json.dumps(to_contract(report)))
    opened = load([str(file)])[0]
    assert not opened.has_traces and opened.report.verdict == report.verdict
    with pytest.raises(NoUsableInput, match="holds no events"):
        _ = opened.job
    (tmp_path / "empty").mkdir()
    with pytest.raises(NoUsableInput):
        load([str(tmp_path / "empty")])
    assert job.rank_ids == report.run.ranks and job.step_ns / 1e3 == pytest.approx(report.steps.wall_us)
    for name in ("instances", "members", "ledger", "blame"):
        assert len(getattr(job, name)) == len(report.tables[name])


def test_a_grown_folder_is_read_again(straggler_traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "LEAST_PAUSE_S", 0.0)
    first, second, third, *_ = sorted(straggler_traces.glob("*.gz"))
    copied = [Path(shutil.copy2(file, tmp_path)) for file in (first, second)]
    runs = Runs([str(tmp_path)], load([str(tmp_path)]))
    assert len(runs.open_runs[0].report.run.ranks) == 2 and runs.refresh() == 1  # nothing changed
    copied.append(Path(shutil.copy2(third, tmp_path)))
    assert runs.refresh() == 2 and len(runs.open_runs[0].report.run.ranks) == 3
    for file in copied:
        file.unlink()
    assert runs.refresh() == 3 and runs.problem
    assert len(runs.open_runs[0].report.run.ranks) == 3  # what was shown stays


@pytest.mark.parametrize("raised", [OSError(2, "No such file", "x.json"), NoUsableInput("cut\x1b[31m"), KeyError("x")])
def test_whatever_goes_wrong_is_a_note(straggler: OpenRun, tmp_path: Path, monkeypatch, raised: Exception) -> None:
    monkeypatch.setattr(served, "LEAST_PAUSE_S", 0.0)
    runs = Runs([str(tmp_path)], [straggler])
    (tmp_path / "rank0.json").write_text("{}")
    with monkeypatch.context() as patch:
        patch.setattr(served, "load", Mock(side_effect=raised))
        assert runs.refresh() == 2 and runs.problem and "\x1b" not in runs.problem
        assert runs.refresh() == 2  # the same problem is no news
    assert runs.open_runs == (straggler,)
    monkeypatch.setattr(served, "load", lambda *_: [straggler, straggler])
    # A file that went is looked for again, even where nothing has changed since.
    assert runs.refresh() == (3 if isinstance(raised, OSError) else 2)


def test_what_is_no_file_beside_a_run_stops_no_look(straggler_traces: Path, tmp_path: Path) -> None:
    traces = {Path(shutil.copy2(file, tmp_path)).name for file in straggler_traces.glob("*.gz")}
    for name, target in (("gone.json", "nothing"), ("loop.json", "loop.json")):
        (tmp_path / name).symlink_to(tmp_path / target)
    for name in ("pipe.json", "host.h.1.counters.jsonl"):
        os.mkfifo(tmp_path / name)
    os.mkdir(tmp_path / "closed", 0)
    (tmp_path / "caf\udce9.json").write_text("{}")
    stamp = served.folder_stamp([str(tmp_path), str(tmp_path / "nothing")])
    assert {Path(name).name for name, _, _ in stamp} >= traces and hosts_now(str(tmp_path)) == []


def _names(folder: Path, launch: Manifest | None = LAUNCH) -> list[str]:
    return [tuning.name for tuning in tunings_of(str(folder), launch)]


def test_a_served_tuning_is_its_diagnosis_and_bare_traces_have_none(tuned_folder: Path, tmp_path: Path) -> None:
    (opened,) = load([str(tuned_folder)])
    assert opened.has_traces and opened.launch == LAUNCH
    (tuning,) = opened.tunings
    assert (tuning.folder, tuning.document.result) == (os.path.realpath(tuned_folder), ANSWER)
    run = run_of_command(tmp_path / "made")
    (run / "manifest.json").unlink()
    (opened,) = load([str(run)])
    assert opened.launch is None and opened.run_folder == "" and opened.tunings == []


def test_a_run_has_the_tunings_beside_it_of_the_same_command_the_newest_first(tmp_path: Path) -> None:
    run = tmp_path / "a-run"
    for folder, answer in ((tmp_path / OLDER, None), (tmp_path / NEWER, None), (run / "inside", ANSWER)):
        write_document(state(), folder, answer)
    assert _names(run) == [NEWER, OLDER] and _names(run, None) == []
    assert (
        _names(run, Manifest(LAUNCH.command, "/elsewhere")) == [] == _names(run, Manifest("python acme_train.py", CWD))
    )
    assert COMMAND[-1] == "two words"  # quoted in the manifest, a list in tune.json


def test_what_cannot_be_read_is_none_what_changes_is_read_again_and_of_many_the_newest(tmp_path: Path) -> None:
    for answer in (None, ANSWER):
        write_document(state(), tmp_path / OLDER, answer)
        assert tunings_of(str(tmp_path / "run"), LAUNCH)[0].document.result == answer
    (tmp_path / OLDER / FILE).write_text("{")
    assert _names(tmp_path / "run") == [] and _names(tmp_path / "gone" / "run") == []
    for number in range(tunings.MOST + 3):
        write_document(state(), tmp_path / "many" / f"{number:02d}-tune-train")
    assert _names(tmp_path / "many" / "run") == [
        f"{number:02d}-tune-train" for number in range(tunings.MOST + 2, 2, -1)
    ]


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
    told = _tracks(
        job, tmp_path, 3, *(_sample(job, n, n) for n in range(-5, 9)), '{"at_ns": 12', "[]", '{"at_ns": "x"}'
    )
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
