"""Comet offline: the archive that `comet upload` would send, read back."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from ddprof.slices.trackers.content import Content
from ddprof.slices.trackers.target import Target

pytest.importorskip("comet_ml", reason="comet_ml is not installed")


@pytest.fixture
def sent(content: Content, send: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def sent_offline() -> tuple[dict[str, Any], list[dict[str, Any]], zipfile.ZipFile]:
        monkeypatch.setenv("COMET_START_ONLINE", "0")
        monkeypatch.setenv("COMET_OFFLINE_DIRECTORY", str(tmp_path / "comet"))
        failed, told = send(Target("comet", "vision"), "late run", (content, 7))
        assert failed == [] and len(told) == 1 and "comet upload" in told[0], told
        (file,) = (tmp_path / "comet").glob("*.zip")
        archive = zipfile.ZipFile(file)
        lines = archive.read("messages.json").decode().splitlines()
        return json.loads(archive.read("experiment.json")), [json.loads(line) for line in lines], archive

    return sent_offline


def test_a_new_experiment_named_like_ours(sent: Any, content: Content) -> None:
    experiment, messages, archive = sent()
    assert experiment["project_name"] == "vision"
    told = [message["payload"]["metric"] for message in messages if message["type"] == "metric_msg"]
    metrics = {metric["metricName"]: (metric["metricValue"], metric.get("step")) for metric in told}
    wanted = {key: (pytest.approx(value), 7) for key, value in content.numbers.items()}
    assert {key: metrics[key] for key in content.numbers} == wanted
    others = {m["payload"].get("key"): m["payload"].get("value") for m in messages if m["type"] == "log_other"}
    assert {key: others[key] for key in content.words} == dict(content.words) and others["Name"] == "late run"
    assert content.html.read_bytes() in [archive.read(name) for name in archive.namelist()]


def test_the_experiment_of_the_script(sent: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    key = "0123456789abcdef0123456789abcdef"
    monkeypatch.setenv("COMET_EXPERIMENT_KEY", key)
    experiment, messages, _ = sent()
    assert experiment["offline_id"] == key
    assert "Name" not in {m["payload"].get("key") for m in messages if m["type"] == "log_other"}
