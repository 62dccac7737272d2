"""MLflow: a database, and a real server on loopback, asked by its own client what they were given."""

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from ports import free_port

from ddprof.slices.trackers.content import Content
from ddprof.slices.trackers.destination import Target

pytest.importorskip("mlflow", reason="mlflow is not installed")
START_S = 300  # a loaded machine needs two minutes to import it


@pytest.fixture(scope="module", params=["database", pytest.param("server", marks=pytest.mark.slow)])
def address(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of the tracking store: a database, or a server of its own with its database and artifacts in one."""
    folder, port = tmp_path_factory.mktemp("mlflow"), free_port()
    if request.param == "database":
        yield f"sqlite:///{folder}/runs.db"
        return
    store = ["--backend-store-uri", f"sqlite:///{folder}/runs.db", "--artifacts-destination", str(folder / "artifacts")]
    line = [sys.executable, "-m", "mlflow", "server", "--port", str(port), "--workers", "1", *store]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(line, cwd=folder, stdout=log, stderr=log, start_new_session=True)
        try:
            _wait_for(f"http://127.0.0.1:{port}/health", process, folder / "log")
            yield f"http://127.0.0.1:{port}"
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until and process.poll() is None:
        with suppress(OSError), urllib.request.urlopen(url, timeout=1):
            return
        time.sleep(0.1)
    raise AssertionError(log.read_text())


def test_a_new_run(content: Content, send, address: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from mlflow.artifacts import download_artifacts
    from mlflow.tracking import MlflowClient

    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    live, client = Content({"ddprof/live/step_ms": 90.0}), MlflowClient(address)
    failed, (link,) = send(Target("mlflow", "vision"), "late run", (live, 3), (content, 7))
    assert failed == []
    experiment = client.get_experiment_by_name("vision")
    (run,) = client.search_runs([experiment.experiment_id])
    page = f"{address}/#/experiments/{experiment.experiment_id}/runs/{run.info.run_id}"
    assert link.endswith(page if address.startswith("http") else f"run {run.info.run_id} in {address}")
    assert (run.info.run_name, run.info.status) == ("late run", "FINISHED")
    assert {key: run.data.metrics[key] for key in content.numbers} == pytest.approx(dict(content.numbers))
    assert [m.step for m in client.get_metric_history(run.info.run_id, "ddprof/step_ms")] == [7]
    assert [m.step for m in client.get_metric_history(run.info.run_id, "ddprof/live/step_ms")] == [3]
    for key, text in content.words.items():
        assert run.data.tags[key.replace("/", ".")] == text
    assert run.data.tags["mlflow.note.content"] == content.markdown
    (artifact,) = client.list_artifacts(run.info.run_id, "ddprof")
    fetched = download_artifacts(run_id=run.info.run_id, artifact_path=artifact.path, dst_path=str(tmp_path / "got"))
    assert Path(fetched).read_text() == "<!doctype html><title>the report</title>"


def test_the_scripts_run_goes_on(content: Content, send, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow.tracking import MlflowClient

    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    client = MlflowClient(address)
    own = client.create_run(client.create_experiment("of the script"), run_name="train")
    monkeypatch.setenv("MLFLOW_RUN_ID", own.info.run_id)
    assert send(Target("mlflow", "vision"), "late run", (content, 7))[0] == []
    run = client.get_run(own.info.run_id)
    assert (run.info.status, run.info.run_name) == ("RUNNING", "train")
    assert run.data.metrics["ddprof/step_ms"] == 100 and "mlflow.note.content" not in run.data.tags


def test_a_server_that_is_not_there_is_one_line(content: Content, send, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    failed, told = send(Target("mlflow"), "r", (content, 0))
    assert failed == ["mlflow"] and len(told) == 1 and "\n" not in told[0]
