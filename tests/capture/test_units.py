"""Capture's parts on their own: no torch, milliseconds each."""

from __future__ import annotations

import gzip
import importlib
import json
import os
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from ddprof.capture.files.config import CaptureConfig, rank_selected
from ddprof.capture.files.layout import host_label, parse_stem, sidecar_of
from ddprof.capture.files.ring import StepRing, read_ring
from ddprof.capture.files.step import Step
from ddprof.capture.files.storage import compress, write_json
from ddprof.capture.guard import Guard
from ddprof.capture.identity import identify
from ddprof.capture.import_hook import ImportHook
from ddprof.capture.launcher import manifest, run_folder
from ddprof.capture.launcher.shim import write_shim
from ddprof.capture.launcher.upload import upload
from ddprof.capture.patch import Patch
from ddprof.capture.tensorflow.job import task_of_cluster
from ddprof.capture.tensorflow.xplane import newest_profile, to_chrome
from ddprof.capture.window.plan import WindowPlan


def step(number: int, dur_ns: int = 10, profiled: bool = False) -> Step:
    return Step(number, number * 100, number * 100 + dur_ns, 1, 2, 3, 4, 5, profiled)


def test_ring_keeps_the_last_steps(tmp_path: Path) -> None:
    ring = StepRing(tmp_path / "a.ring", {"rank": 3}, capacity=4)
    for number in range(6):
        ring.write(step(number, profiled=number == 5))
    content = read_ring(tmp_path / "a.ring")  # while the writer is alive
    ring.close()
    assert content.identity == {"rank": 3}
    assert content.written == 6
    assert list(content.steps) == [step(2), step(3), step(4), step(5, profiled=True)]


@pytest.mark.parametrize("damage", [b"", b"nonsense" * 600, b"DDPROFR2"])
def test_ring_that_is_none_is_refused(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "a.ring"
    path.write_bytes(damage)
    with pytest.raises(ValueError, match=r"a\.ring"):
        read_ring(path)


def test_window_plan() -> None:
    def windows(plan: WindowPlan, steps: int) -> list[tuple[int, int]]:
        found, opened = [], None
        for index in range(1, steps):
            if opened is not None and plan.closes_at(index):
                found.append((opened, index - 1))
                opened = None
            if opened is None and plan.opens_at(index):
                opened = index
        return found

    assert windows(WindowPlan(5, 5), 100) == [(5, 9)]
    assert windows(WindowPlan(5, 5, 20), 60) == [(5, 9), (25, 29), (45, 49)]
    assert windows(WindowPlan(2, 3, 1), 16)[:2] == [(2, 4), (6, 8)]  # at least one bare step between two windows
    assert windows(WindowPlan(5, 5, automatic=False), 100) == []
    plan = WindowPlan(5, 3)
    assert plan.opens_at(5)
    assert [plan.is_last(step) for step in (5, 6, 7)] == [False, False, True]
    assert not plan.closes_at(7)
    asked = WindowPlan(5, 5, automatic=False)
    asked.request(50, 2)
    assert windows(asked, 100) == [(50, 51)]


@pytest.mark.parametrize(
    ("spec", "chosen"),
    [
        ("all", [0, 1, 2, 3, 4, 5, 6, 7]),
        ("0,7", [0, 7]),
        ("sample:3", [0, 4, 7]),
        ("sample:1", [0]),
        ("sample:99", list(range(8))),
    ],
)
def test_rank_selection(spec: str, chosen: list[int]) -> None:
    assert [rank for rank in range(8) if rank_selected(spec, rank, 8)] == chosen


@pytest.mark.parametrize("spec", ["sample:0", "some", "1,x", ""])
def test_rank_selection_that_cannot_be_read(spec: str) -> None:
    with pytest.raises(ValueError):
        rank_selected(spec, 0, 8)


def test_config_survives_unknown_keys(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    config = CaptureConfig(run_dir="/r", package_dir="/p", version="1", skip_steps=9)
    config.save(path)
    path.write_text(path.read_text().replace("{", '{"of_a_newer_version": 1,', 1))
    assert CaptureConfig.load(path) == config


def test_guard_swallows_once_and_goes_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    guard = Guard()
    calls = []

    def work() -> int:
        calls.append(1)
        raise KeyError("broken")

    guarded = guard.wrap(work)
    assert guarded() is None
    assert guarded() is None
    assert (len(calls), guard.swallowed, guard.enabled) == (1, 1, False)
    assert capsys.readouterr().err.count("\n") == 1


def test_guard_lets_an_interrupt_pass() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Guard().wrap(interrupted)()


def test_patch_restores_inherited_and_own_attributes() -> None:
    class Base:
        def f(self) -> int:
            return 1

    class Child(Base):
        pass

    own = vars(Base)["f"]
    for owner in (Child, Base):
        patch = Patch(owner, "f", lambda self: 2)
        patch.install()
        patch.install()
        assert Child().f() == 2
        patch.uninstall()
        patch.uninstall()
        assert Child().f() == 1
    assert "f" not in vars(Child)
    assert vars(Base)["f"] is own


def test_patch_leaves_a_later_patch_alone() -> None:
    owner = SimpleNamespace(f=1)
    patch = Patch(owner, "f", 2)
    patch.install()
    owner.f = 3
    patch.uninstall()
    assert owner.f == 3


def test_import_hook_calls_back_after_the_import_and_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hooked_module_x.py").write_text("value = 41\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    before = list(sys.meta_path)
    seen: list[int] = []
    ImportHook().when_imported("hooked_module_x", lambda module: seen.append(module.value + 1))
    assert seen == []
    module = importlib.import_module("hooked_module_x")
    assert seen == [42]
    assert sys.meta_path == before
    assert module.__spec__ is not None
    assert "exec_module" not in vars(module.__spec__.loader)
    ImportHook().when_imported("hooked_module_x", lambda module: seen.append(module.value))
    assert seen == [42, 41]


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}, (3, 8, 1)),
        ({"HOROVOD_RANK": "1", "HOROVOD_SIZE": "2", "RANK": "0", "WORLD_SIZE": "1"}, (1, 2, None)),
        ({"OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "6"}, (5, 6, None)),
        ({"SLURM_PROCID": "2", "SLURM_NTASKS": "4", "SLURM_LOCALID": "0"}, (2, 4, 0)),
        ({}, (0, 1, None)),
    ],
)
def test_rank_from_the_environment(
    variables: dict[str, str], expected: tuple[int, int, int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setitem(sys.modules, "torch.distributed", SimpleNamespace(is_available=lambda: False))
    found = identify()
    assert (found.rank, found.world_size, found.local_rank) == expected


def test_names() -> None:
    fields = parse_stem("rank3.node-a.77.1.0.pt.trace.json.gz")
    assert fields == {"rank": "3", "host": "node-a", "pid": "77", "restart": "1", "window": "0"}
    assert parse_stem("rank-70.Mar_25_20_48_12.2861.pt.trace.json.gz") is None
    assert sidecar_of(Path("/r/rank3.node-a.77.1.0.fr.json")).name == "rank3.node-a.77.1.sidecar.json"


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


def test_upload_to_any_fsspec_url(tmp_path: Path) -> None:
    import fsspec

    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "manifest.json").write_text("{}")
    address = upload(tmp_path / "run", "memory://bucket/runs")
    assert address == "memory:///bucket/runs/run"
    assert fsspec.filesystem("memory").cat("/bucket/runs/run/manifest.json") == b"{}"


def test_upload_makes_the_folders_of_a_file_system(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "manifest.json").write_text("{}")
    upload(tmp_path / "run", f"file://{tmp_path}/new/runs")
    assert (tmp_path / "new" / "runs" / "run" / "manifest.json").read_text() == "{}"


def test_a_run_folder_that_pythonpath_cannot_name(tmp_path: Path) -> None:
    shim = write_shim(CaptureConfig(run_dir=str(tmp_path / "sample:8"), package_dir="/", version="test"))
    try:
        assert ":" not in str(shim)
        assert CaptureConfig.load(shim / "config.json").run_dir == str(tmp_path / "sample:8")
    finally:
        shutil.rmtree(shim)


@pytest.mark.parametrize(
    ("task", "cluster", "expected"),
    [
        ({"type": "worker", "index": 1}, {"worker": ["a:1", "b:1"]}, (1, 2)),
        ({"type": "worker", "index": 0}, {"chief": ["a:1"], "worker": ["b:1"]}, (1, 2)),
        ({"type": "chief", "index": 0}, {"chief": ["a:1"], "worker": ["b:1"]}, (0, 2)),
        ({}, {}, (0, 1)),
    ],
)
def test_tensorflow_ranks_come_from_the_cluster(task: object, cluster: object, expected: tuple[int, int]) -> None:
    assert task_of_cluster(json.dumps({"task": task, "cluster": cluster})) == expected


def test_tensorflow_profiles_become_chrome_traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = [SimpleNamespace(metadata_id=n, offset_ps=2_500_000, duration_ps=1_000_000) for n in (0, 1)]
    line = SimpleNamespace(name="python", display_name="", timestamp_ns=4_000, events=events)
    metadata = {0: SimpleNamespace(name="MatMul"), 1: SimpleNamespace(name="ThreadpoolListener::Record")}
    host = SimpleNamespace(name="/host:CPU", id=7, lines=[line], event_metadata=metadata, stats=[])
    start = SimpleNamespace(metadata_id=0, uint64_value=123, int64_value=0)
    meta = {0: SimpleNamespace(name="profile_start_time")}
    task = SimpleNamespace(name="Task Environment", id=0, lines=[], stats=[start], stat_metadata=meta)
    space = SimpleNamespace(planes=[host, task], ParseFromString=lambda data: None)
    module = SimpleNamespace(XSpace=lambda: space)
    monkeypatch.setitem(sys.modules, "tensorflow.tsl.profiler.protobuf.xplane_pb2", module)
    path = tmp_path / "a" / "vm.xplane.pb"
    path.parent.mkdir()
    path.write_bytes(b"")
    found = newest_profile(tmp_path)
    assert found == path
    trace = to_chrome(path)
    assert trace["profile_start_ns"] == 123
    spans = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert spans == [{"ph": "X", "name": "MatMul", "pid": 7, "tid": 0, "ts": 6.5, "dur": 1.0}]


def test_time_outside_phases_is_taken_step_by_step(tmp_path: Path) -> None:
    phases = ("data_ns", "forward_ns", "backward_ns")
    steps = [
        {"start_ns": 100 * n, "end_ns": 100 * n + 30, **{name: 29 * (n % 3 == i) for i, name in enumerate(phases)}}
        for n in range(12)
    ]
    write_json(tmp_path / "rank0.h.7.0.sidecar.json", {"rank": 0, "host": "h", "steps": steps})
    times = run_folder.summarize(tmp_path).step_times[0]
    assert (times["step_ns"], times["data_ns"], times["rest_ns"]) == (30, 0, 1)


def test_a_job_too_short_for_its_window_is_told_so(tmp_path: Path) -> None:
    write_json(tmp_path / "rank0.h.7.0.sidecar.json", {"rank": 0, "host": "h", "world_size": 1, "steps_total": 4})
    summary = run_folder.summarize(tmp_path)
    assert "the job ended after 4 steps, before step 5" in manifest.last_line(tmp_path, summary, 5)
    assert "0 traces of 1 rank in" in manifest.last_line(tmp_path, summary, None)
    assert "no trace: no rank wrote one (see --ranks" in manifest.last_line(tmp_path, summary, 2)


def test_failed_write_leaves_nothing(tmp_path: Path) -> None:
    target = tmp_path / "folder-in-the-way"
    target.mkdir()
    with pytest.raises(OSError):
        write_json(target, {"a": 1})
    assert [path.name for path in tmp_path.iterdir()] == ["folder-in-the-way"]


def test_compress_replaces_the_plain_file(tmp_path: Path) -> None:
    plain = tmp_path / "t.json"
    plain.write_text('{"a": 1}')
    packed = compress(plain)
    assert not plain.exists()
    assert gzip.decompress(packed.read_bytes()) == b'{"a": 1}'


def test_a_plan_is_idle_only_where_no_window_is_to_come() -> None:
    plan = WindowPlan(3, 2, automatic=False)
    assert plan.idle
    plan.request(10, 1)
    assert not plan.idle
    assert plan.opens_at(12)
    assert plan.idle
    assert not WindowPlan(3, 2).idle


def test_a_hook_that_fails_costs_one_line_and_is_off_from_then_on(capsys: pytest.CaptureFixture[str]) -> None:
    guard = Guard()
    hook = guard.wrap_hook(lambda first, second: first / (second or 1))
    assert hook(6) == 6
    assert hook(6, 3) == 2
    assert hook("x", 1) is None
    assert hook(6, 3) is None
    assert guard.swallowed == 1
    assert capsys.readouterr().err.count("capture is off") == 1
