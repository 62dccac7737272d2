"""Comet offline: the archive that `comet upload` would send, read back."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from ddprof.slices.trackers.content import Content
from ddprof.slices.trackers.destination import Target

pytest.importorskip("comet_ml", reason="comet_ml is not installed")


def sent(content: Content, send: Any, folder: Path, patch: pytest.MonkeyPatch) -> tuple[Any, Any, zipfile.ZipFile]:
    """(the experiment, its messages, the archive)."""
    patch.setenv("COMET_START_ONLINE", "0")
    patch.setenv("COMET_OFFLINE_DIRECTORY", str(folder))
    failed, told = send(Target("comet", "vision"), "late run", (content, 7))
    assert failed == [] and len(told) == 1 and "comet upload" in told[0], told
    (file,) = folder.glob("*.zip")
    archive = zipfile.ZipFile(file)
    lines = archive.read("messages.json").decode().splitlines()
    return json.loads(archive.read("experiment.json")), [json.loads(line) for line in lines], archive


def test_a_new_experiment(content: Content, send: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment, messages, archive = sent(content, send, tmp_path / "comet", monkeypatch)
    assert experiment["project_name"] == "vision"
    told = [message["payload"]["metric"] for message in messages if message["type"] == "metric_msg"]
    metrics = {metric["metricName"]: (metric["metricValue"], metric.get("step")) for metric in told}
    wanted = {key: (pytest.approx(value), 7) for key, value in content.numbers.items()}
    assert {key: metrics[key] for key in content.numbers} == wanted
    others = {m["payload"].get("key"): m["payload"].get("value") for m in messages if m["type"] == "log_other"}
    assert {key: others[key] for key in content.words} == dict(content.words) and others["Name"] == "late run"
    assert content.html.read_bytes() in [archive.read(name) for name in archive.namelist()]


def test_the_scripts_experiment(content: Content, send: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = "0123456789abcdef0123456789abcdef"
    monkeypatch.setenv("COMET_EXPERIMENT_KEY", key)
    experiment, messages, _ = sent(content, send, tmp_path / "comet", monkeypatch)
    assert experiment["offline_id"] == key
    assert "Name" not in {m["payload"].get("key") for m in messages if m["type"] == "log_other"}
