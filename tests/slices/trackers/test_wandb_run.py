"""W&B offline: the file that `wandb sync` would send, read back."""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ddprof.slices.trackers.content import Content
from ddprof.slices.trackers.destination import Target

pytest.importorskip("wandb", reason="wandb is not installed")
BLOCK, HEADER, FULL, FIRST, LAST = 32768, 7, 1, 2, 4


@pytest.fixture(autouse=True)
def own_service() -> Iterator[None]:
    """The library reads the environment once per process; each test has its own."""
    import wandb

    yield
    wandb.teardown()


def messages(data: bytes) -> Iterator[bytes]:
    """Messages of a log in LevelDB's format, behind W&B's header: their parts lie in blocks (log_format.md there)."""
    assert data[:4] == b":W&B"
    position, parts = HEADER, b""
    while position + HEADER <= len(data):
        if BLOCK - position % BLOCK < HEADER:
            position += BLOCK - position % BLOCK
            continue
        _, length, kind = struct.unpack_from("<IHB", data, position)
        position += HEADER + length
        part = data[position - length : position]
        parts = part if kind in (FULL, FIRST) else parts + part
        if kind in (FULL, LAST):
            yield parts


def records(folder: Path) -> Iterator[Any]:
    from wandb.proto.wandb_internal_pb2 import Record

    (file,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    for message in messages(file.read_bytes()):
        record = Record()
        record.ParseFromString(message)
        yield record


def item_key(item: Any) -> str:
    return item.key or ".".join(item.nested_key)


def sent(content: Content, send: Any, folder: Path, patch: pytest.MonkeyPatch, live: bool = False) -> tuple[Any, ...]:
    """(the run, its history, its summary, its artifacts, what was said)."""
    patch.setenv("WANDB_MODE", "offline")
    patch.setenv("WANDB_DIR", str(folder))
    failed, told = send(Target("wandb", "vision"), "late run", (content, 7), live=live)
    assert failed == [], told
    every = list(records(folder))
    history = [{item_key(i): json.loads(i.value_json) for i in r.history.item} for r in every if r.HasField("history")]
    summary = {item_key(i): json.loads(i.value_json) for r in every if r.HasField("summary") for i in r.summary.update}
    run = next(r.run for r in every if r.HasField("run"))
    asked = [r.request.log_artifact for r in every if r.HasField("request") and r.request.HasField("log_artifact")]
    artifacts = [*(r.artifact for r in every if r.HasField("artifact")), *(request.artifact for request in asked)]
    return run, history, summary, artifacts, told


def test_new_run_named_like_ours(content: Content, send: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, history, summary, artifacts, told = sent(content, send, tmp_path, monkeypatch)
    assert (run.display_name, run.project) == ("late run", "vision")
    (row,) = history
    assert {key: row[key] for key in content.numbers} == dict(content.numbers) and row["ddprof/training_step"] == 7
    assert {key: summary[key] for key in content.words} == dict(content.words)
    assert [(a.name, a.type) for a in artifacts] == [("ddprof-late-run", "ddprof-report")]
    assert [entry.path for entry in artifacts[0].manifest.contents] == ["ddprof-report.html"]
    assert len(told) == 1 and "wandb sync" in told[0]


def test_the_run_of_the_script(content: Content, send: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_RUN_ID", "abc123")
    run, *_ = sent(content, send, tmp_path, monkeypatch, live=True)
    assert (run.run_id, run.display_name) == ("abc123", "")


def test_a_second_writer_beside_the_script_shares_the_run_where_there_is_a_server() -> None:
    from ddprof.slices.trackers.wandb_run import settings

    assert settings(True, {})["mode"] == "shared" and settings(True, {})["x_primary"] is False
    assert "mode" not in settings(False, {}) and "mode" not in settings(True, {"WANDB_MODE": "offline"})


def test_no_login_is_one_line(content: Content, send: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"WANDB_MODE": "online", "WANDB_API_KEY": "", "HOME": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    failed, told = send(Target("wandb"), "r", (content, 0))
    assert failed == ["wandb"] and len(told) == 1 and "\n" not in told[0]
