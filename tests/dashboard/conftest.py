"""Runs to look at, made by the trace generator (so that every test runs everywhere), and a server of them."""

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("dash", reason="the dashboard needs dash (pip install 'ddprof[dashboard]')")

from benchmarks.oracle.kinds import scenario
from benchmarks.oracle.spec import Scenario
from ddprof.capture.files.ring import StepRing
from ddprof.capture.files.step import Step
from ddprof.dashboard.app import create_app
from ddprof.dashboard.http import compress, make_server
from ddprof.dashboard.onefile.document import render
from ddprof.dashboard.runs.open_run import OpenRun, load
from ddprof.dashboard.runs.served import Runs
from ddprof.dashboard.runs.view import View
from ddprof.dashboard.server.guard import Access
from tests.dashboard.browsing import Page, PageOf, Sample, Serve
from tests.dashboard.made import SAMPLES, alone
from tests.dashboard.tuned import tuned

SEED = 17
UPLOAD_BYTES, RUNNING_STEPS = 2_000_000, 30
Drawn = Callable[[str], Path]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "chromium" in getattr(item, "fixturenames", ()):
            item.add_marker("browser")


@pytest.fixture(scope="session")
def drawn(generated: Callable[[str, Scenario], Path]) -> Drawn:
    """`drawn(kind)`: the folder of the traces of a labelled run of that kind."""
    return lambda kind: generated(f"drawn {kind}", scenario(SEED, kind)) / "traces"


@pytest.fixture(scope="session")
def straggler_traces(drawn: Drawn) -> Path:
    """A GPU run of which one rank's device is slow."""
    return drawn("straggler.compute")


@pytest.fixture(scope="session")
def straggler(straggler_traces: Path) -> OpenRun:
    return load([str(straggler_traces)])[0]


@pytest.fixture(scope="session")
def pipeline(drawn: Drawn) -> OpenRun:
    """A pipeline-parallel run with one slow stage."""
    return load([str(drawn("pipeline.imbalance"))])[0]


@pytest.fixture(scope="session")
def tuned_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of `ddprof tune` whose diagnosis found small buckets: one setting kept, one lost, one failed."""
    return tuned(tmp_path_factory.mktemp("tuned") / "20261123T120000Z-tune-train")


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Path]:
    """A folder of two ranks that make steps of 10 ms; the loader of rank 1 takes 5 ms more."""
    rings = [StepRing(tmp_path / f"rank{r}.h.{r}.0.ring", {"rank": r, "host": "h", "started_ns": 0}) for r in (0, 1)]
    ms, now = 1_000_000, time.time_ns()
    for number in range(RUNNING_STEPS):
        at = now - (RUNNING_STEPS - number) * 10 * ms
        for rank, ring in enumerate(rings):
            ring.write(Step(number, at, at + 10 * ms, (1 + 5 * rank) * ms, 2 * ms, 5 * ms, ms, 0, 0, 0, 0, 0, 0, False))
    yield tmp_path
    for ring in rings:
        ring.close()


@pytest.fixture
def view(straggler: OpenRun) -> View:
    return alone(straggler)


@pytest.fixture(scope="session")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    """`sample(name)`: a shipped run; of a copy, for facts are kept beside traces."""
    folder = tmp_path_factory.mktemp("samples")
    return cache(lambda name: load([str(shutil.copytree(SAMPLES / name, folder / name))], workers=1)[0])


@pytest.fixture(scope="session")
def client(straggler: OpenRun) -> Any:
    """A client of the application on loopback, without a server."""
    server = create_app(Runs([], [straggler]), Access()).server
    compress(server)
    return server.test_client()


@pytest.fixture(scope="session")
def serve() -> Iterator[Serve]:
    """`serve(open_runs, token, max_upload_bytes=...)` -> address of a server that runs until the tests end."""
    servers = []

    def start(open_runs: list[OpenRun], token: str | None = None, **how: Any) -> str:
        server = make_server(Runs((), open_runs), 0, Access(token), **how)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    with ThreadPoolExecutor() as pool:  # each takes half a second to hear of it
        pool.map(lambda server: server.shutdown(), servers)


@pytest.fixture(scope="session")
def address(serve: Serve, straggler: OpenRun, pipeline: OpenRun) -> str:
    """A server of both runs that takes uploads; whoever changes its runs starts another."""
    return serve([straggler, pipeline], max_upload_bytes=UPLOAD_BYTES)


@pytest.fixture
def page(chromium: Any, address: str) -> Iterator[Page]:
    """Page of that server, as a reader sees it."""
    yield Page(chromium, address)
    chromium.delete_all_cookies()


@pytest.fixture
def timeline(page: Page) -> Iterator[Page]:
    """Its timeline, which has nothing to complain of in the beginning and in the end."""
    assert page.visit("/timeline") == []
    yield page
    assert page.trouble() == []


@pytest.fixture
def page_of(chromium: Any, serve: Serve) -> Iterator[PageOf]:
    """`page_of(run, ...)`: what a reader sees of a server of these runs."""
    yield lambda *runs, **how: Page(chromium, serve(list(runs), **how))
    chromium.delete_all_cookies()


@pytest.fixture(scope="session")
def straggler_text(straggler: OpenRun) -> str:
    return render(straggler)


@pytest.fixture(scope="session")
def straggler_file(straggler_text: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("file") / "x.html"
    file.write_text(straggler_text, encoding="utf-8")
    return file.as_uri()


@pytest.fixture
def file_page(chromium: Any, straggler_file: str) -> Iterator[Page]:
    """That file, open, which has nothing to complain of in the end."""
    page = Page(chromium, straggler_file).open()
    yield page
    assert page.trouble() == []


@pytest.fixture
def file_timeline(file_page: Page) -> Page:
    return file_page.open("#timeline")


@pytest.fixture
def file_of(chromium: Any, tmp_path: Path) -> PageOf:
    """`file_of(run)`: what a reader sees of the HTML report of a run."""

    def written(run: OpenRun) -> Page:
        (tmp_path / "x.html").write_text(render(run), encoding="utf-8")
        return Page(chromium, (tmp_path / "x.html").as_uri())

    return written
