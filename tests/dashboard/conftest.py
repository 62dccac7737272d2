"""Runs to look at, made by the trace generator (so that every test runs everywhere), and a server of them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("dash", reason="the dashboard needs dash (pip install 'ddprof[dashboard]')")

from ddprof.dashboard.http import make_server
from ddprof.dashboard.runs.open_run import OpenRun, load
from ddprof.dashboard.runs.perfetto import PERFETTO_UI
from ddprof.dashboard.runs.served import Runs
from ddprof.dashboard.runs.view import View
from ddprof.dashboard.server.guard import Access

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # benchmarks/ is not installed

from benchmarks.oracle.kinds import scenario
from benchmarks.oracle.simulate import simulate
from benchmarks.oracle.write import write
from tests.dashboard.tuned import tuned

SEED = 17


def generate(folder: Path, kind: str) -> Path:
    """A labelled run of some kind; returns the folder of its traces."""
    write(simulate(scenario(SEED, kind)), folder)
    return folder / "traces"


@pytest.fixture(scope="session")
def straggler_traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GPU run of which one rank's device is slow."""
    return generate(tmp_path_factory.mktemp("straggler") / "run", "straggler.compute")


@pytest.fixture(scope="session")
def straggler(straggler_traces: Path) -> OpenRun:
    """That run, loaded."""
    return load([str(straggler_traces)])[0]


@pytest.fixture(scope="session")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> OpenRun:
    """A pipeline-parallel run with one slow stage."""
    return load([str(generate(tmp_path_factory.mktemp("pipeline") / "run", "pipeline.imbalance"))])[0]


@pytest.fixture(scope="session")
def tuned_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of `ddprof tune` whose diagnosis found small buckets: one setting kept, one lost, one failed."""
    return tuned(tmp_path_factory.mktemp("tuned") / "20261123T120000Z-tune-train")


@pytest.fixture
def view(straggler: OpenRun) -> View:
    """The straggler run without filters."""
    return View(straggler, {}, (straggler,))


@pytest.fixture(scope="session")
def serve() -> Iterator[Callable[..., str]]:
    """`serve(open_runs)` -> address of a server that runs until the tests end."""
    servers = []

    def start(
        open_runs: list[OpenRun],
        token: str | None = None,
        paths: tuple[str, ...] = (),
        max_upload_bytes: int = 0,
        perfetto_ui: str = PERFETTO_UI,
    ) -> str:
        server = make_server(Runs(paths, open_runs), 0, Access(token), max_upload_bytes, perfetto_ui)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
