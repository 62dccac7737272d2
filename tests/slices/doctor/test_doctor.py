"""`ddprof doctor` tells what is there, what is missing, and how to get it."""

import json
import os
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from unittest.mock import Mock

import pytest
from click.testing import CliRunner

from ddprof.slices.doctor.checks import State, _file_system, _quota, _shared_memory, _told, machine, training
from ddprof.slices.doctor.command import command, installation

FOUND = {"python": "3.11.7", "torch": "2.13.0", "backends": [], "devices": [], "host_events": 1}
FOUND["flight_recorder"] = False


def test_extras_are_those_that_can_be_installed(repo_root: Path) -> None:
    project = pytest.importorskip("tomllib").loads((repo_root / "pyproject.toml").read_text())["project"]
    told = {part.name.removeprefix("extra ") for part in installation() if part.name.startswith("extra ")}
    known = {*project["optional-dependencies"]}
    assert told <= known and known - told == {"docs", "frameworks", "dev"}  # for ddprof's own developers


def test_what_is_not_installed_or_compiled_says_what_is_lost_and_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ddprof.slices.doctor.command.version", Mock(side_effect=PackageNotFoundError("x")))
    extras = [part for part in installation() if part.name.startswith("extra")]
    assert {part.state for part in extras} == {State.MISSING}
    assert "pip install 'ddprof[dask]'" in [part.remedy for part in extras]
    monkeypatch.setattr("ddprof.slices.doctor.command.find_spec", lambda _: None)
    parts = next(part for part in installation() if part.name == "compiled parts")
    assert parts.state is State.MISSING and "three times as long" in parts.said and "C compiler" in parts.remedy


@pytest.mark.torch
def test_torch_is_asked_by_profiling() -> None:
    pytest.importorskip("torch")
    found = {part.name: part for part in training(sys.executable)}
    assert found["PyTorch"].state is State.OK and "gloo" in found["PyTorch"].said
    assert found["profiler"].state is State.OK


def test_an_interpreter_that_does_not_answer_is_unknown() -> None:
    answers = {"/no/such/python": "cannot be started", "/bin/false": "ended with", "/bin/true": "ended with 0"}
    for python, said in answers.items():
        (part,) = training(python)
        assert part.state is State.UNKNOWN and said in part.said, python


def test_kernels_that_are_not_recorded_are_told_with_what_may_hold_the_driver_and_an_old_torch_too() -> None:
    found = FOUND | {"backends": ["nccl"], "devices": ["H100"] * 8, "device_events": 0, "nccl": "2.27.3"}
    told = {part.name: part for part in _told(found)}
    assert told["GPU activities"].state is State.MISSING and "CUPTI" in told["GPU activities"].remedy
    assert told["NCCL"].state is State.MISSING and told["profiler"].state is State.OK
    whole = {part.name: part for part in _told({**found, "device_events": 2, "flight_recorder": True})}
    assert {part.state for part in whole.values()} == {State.OK} and "8 x H100" in whole["GPU activities"].said
    for version, state in (("2.3.1+cu121", State.MISSING), ("2.4.0", State.OK), ("3.0.0a0", State.OK)):
        assert next(part for part in _told(FOUND | {"torch": version}) if part.name == "PyTorch").state is state


def test_limits_of_a_container_and_of_the_run_folder_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = tmp_path / "cpu.max"
    assert _quota(limit) is None
    for text, quota in {"max 100000\n": None, "150000 100000\n": 1.5, "nonsense": None}.items():
        limit.write_text(text)
        assert _quota(limit) == quota
    assert "--shm-size" in _shared_memory(64 << 20).remedy and _shared_memory(8 << 30).state is State.OK
    mounts = tmp_path / "mounts"
    mounted = ("/dev/sda / ext4", "host:/x /scratch nfs4", "host:/y /scratch/my\\040runs lustre")
    mounts.write_text("".join(f"{line} rw 0 0\n" for line in mounted))
    kinds = {"/home": "ext4", "/scratch/a": "nfs4", "/scratch/my runs/b": "lustre", "/scratchy": "ext4"}
    assert {place: _file_system(Path(place), mounts) for place in kinds} == kinds
    assert _file_system(Path("/home"), tmp_path / "none") is None
    assert next(c for c in machine(tmp_path / "new" / "runs") if c.name == "run folder").state is State.OK
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert next(c for c in machine(tmp_path) if c.name == "run folder").state is State.MISSING


def test_both_forms_say_the_same(tmp_path: Path) -> None:
    options = ["--python", "/no/such/python", "--out", str(tmp_path)]
    text = CliRunner().invoke(command, options)
    rows = json.loads(CliRunner().invoke(command, [*options, "--format", "json"]).stdout)
    assert text.exit_code == 0
    assert all(row["name"] in text.output and row["state"] in ("ok", "missing", "unknown") for row in rows)
    assert {row["of"] for row in rows} == {"ddprof", "training", "machine"}
