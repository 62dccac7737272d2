"""The run folder: salvage of killed ranks, one folder for all nodes, and what its sidecars come to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ddprof.capture.files.layout import host_label
from ddprof.capture.files.ring import StepRing
from ddprof.capture.files.step import Step
from ddprof.capture.files.storage import write_json
from ddprof.capture.launcher import run_folder


def step(number: int, dur_ns: int = 10, profiled: bool = False) -> Step:
    return Step(number, number * 100, number * 100 + dur_ns, 1, 2, 3, 4, 5, profiled)


def test_salvage_completes_a_killed_rank(tmp_path: Path) -> None:
    host, pid = host_label(), 2**22 + 7  # no process has such an id
    stem = f"rank1.{host}.{pid}.0"
    write_json(tmp_path / f"{stem}.sidecar.json", {"state": "running", "rank": 1, "steps": [{"index": 0}], "notes": []})
    ring = StepRing(tmp_path / f"{stem}.ring", {"rank": 1, "host": "h"})
    for number in range(4):
        ring.write(step(number))
    (tmp_path / f"{stem}.0.pt.trace.json").write_text("{}")
    (tmp_path / f"{stem}.sidecar.json.{pid}.tmp").write_text('{"half":')
    notes = run_folder.salvage(tmp_path)
    content = run_folder.read_json(tmp_path / f"{stem}.sidecar.json")
    assert content is not None
    assert content["state"] == "killed"
    assert [entry["index"] for entry in content["steps"]] == [0, 1, 2, 3]
    assert content["windows"][0]["trace_path"] == f"{stem}.0.pt.trace.json"
    assert len(notes) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{stem}.0.pt.trace.json", f"{stem}.sidecar.json"]


def test_salvage_leaves_running_ranks_and_other_hosts_alone(tmp_path: Path) -> None:
    alive = tmp_path / f"rank0.{host_label()}.{os.getpid()}.0.ring"
    elsewhere = tmp_path / "rank1.another-host.4194311.0.ring"
    for path in (alive, elsewhere):
        StepRing(path, {"rank": 0}).close()
    assert run_folder.salvage(tmp_path) == []
    assert sorted(tmp_path.iterdir()) == sorted([alive, elsewhere])


def test_nodes_of_a_slurm_job_share_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    monkeypatch.setenv("SLURM_STEP_ID", "0")
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "2")
    first = run_folder.create(tmp_path, "train", 0.0)
    second = run_folder.create(tmp_path, "train", 5.0)
    assert first.path == second.path == (tmp_path / "train-slurm77.0").resolve()
    assert first.manifest.name == "manifest.json"
    assert second.manifest.name == f"manifest.{host_label()}.{os.getpid()}.json"


def test_time_outside_phases_is_taken_step_by_step(tmp_path: Path) -> None:
    phases = ("data_ns", "forward_ns", "backward_ns")
    steps = [
        {"start_ns": 100 * n, "end_ns": 100 * n + 30, **{name: 29 * (n % 3 == i) for i, name in enumerate(phases)}}
        for n in range(12)
    ]
    write_json(tmp_path / "rank0.h.7.0.sidecar.json", {"rank": 0, "host": "h", "steps": steps})
    times = run_folder.summarize(tmp_path).step_times[0]
    assert (times["step_ns"], times["data_ns"], times["rest_ns"]) == (30, 0, 1)
