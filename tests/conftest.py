"""Fixtures every test may use."""

import functools
import json
import os
import shutil
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from ddprof.cli import main as cli_main
from ddprof.findings import Abstention, Evidence, Finding, Fix, Recoverable
from ddprof.report import model
from ddprof.report.json.contract import to_contract
from ddprof.report.model import ClockInfo, HealthItem, HostClockInfo, Ledger, Report, RunInfo, Steps, Verdict

sys.path.insert(0, str(Path(__file__).resolve().parent))  # `budget`, `stores`: helpers of this folder, no package
sys.path.insert(1, str(Path(__file__).resolve().parents[1]))  # benchmarks/ and tests/ are not installed

import budget
from stores import serving, variables

if TYPE_CHECKING:
    from labelled_runs import Runs

    from benchmarks.oracle.spec import Scenario

# Helpers of these folders are no installed packages, as `budget`, `stores` and benchmarks/ are none.
OF_SLICES = ("slices/hangs", "slices/planning", "slices/tuning")
ROOMS = ("..", "acceptance", "analyzers", "capture/applying", "documents", "fuzz", "oracle", "readers", *OF_SLICES)
sys.path += [f"{sys.path[0]}/{room}" for room in ROOMS]

# What a developer has verified must not show in the reports of the tests.
os.environ["DDPROF_DATA_HOME"] = os.path.join(tempfile.gettempdir(), f"ddprof-tests-{os.getpid()}")

# No test is a measurement: how long an example takes is up to what else the machine does.
hypothesis.settings.register_profile("untimed", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("untimed")

_LATER = {"torch": 1, "browser": 2, "slow": 3}
_LONG = ("test_drawn.py", "test_commands.py")  # minutes each: begun last, one worker ends it while the others are idle


def pytest_configure(config: pytest.Config) -> None:
    """The CPU budget is a plugin: hooks of this file do not see fixtures of the session."""
    config.pluginmanager.register(budget)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Fast tests first, then those that start training processes, then the browser: a defect shows early."""

    def place(item: pytest.Item) -> tuple[int, bool]:
        later = max((_LATER.get(mark.name, 0) for mark in item.iter_markers()), default=0)
        return later, item.path.name not in _LONG

    items.sort(key=place)


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The user's cache of the tests: what a developer's analyses have kept is no part of them."""
    folder = tmp_path_factory.mktemp("cache")
    os.environ["XDG_CACHE_HOME"] = str(folder)
    return folder


@pytest.fixture(scope="session")
def repo_root() -> Path:
    """The checkout."""
    return Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """Folder of real traces (`traces/`), labelled samples (`oracle_samples/`): $DDPROF_SHARED_TRACES or ../shared."""
    stated = os.environ.get("DDPROF_SHARED_TRACES")
    folder = Path(stated) if stated else Path(__file__).resolve().parents[2] / "shared"
    if not (folder / "traces").is_dir():
        pytest.skip(f"no real traces: {folder} does not exist (set DDPROF_SHARED_TRACES)")
    return folder


@pytest.fixture(scope="session")
def shared_run(shared_dir: Path) -> Callable[[str], Path]:
    """A folder of `shared_dir`, by its name there."""

    def folder(name: str) -> Path:
        if not (shared_dir / name).is_dir():
            pytest.skip(f"{name} is not among the real traces")
        return shared_dir / name

    return folder


@pytest.fixture(scope="session")
def sample(repo_root: Path) -> Callable[[str], str]:
    """`sample("healthy")` -> the folder of that shipped sample."""
    return lambda name: str(repo_root / "sample_traces" / name)


@pytest.fixture(scope="session")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, "Scenario"], Path]:
    """`generated(name, scenario)`: the folder of the run that the trace generator draws, written once per session; the
    workers of pytest-xdist share it."""
    from benchmarks.oracle.simulate import simulate
    from benchmarks.oracle.write import write

    own = tmp_path_factory.mktemp("generated")
    shared = own.parents[1] / "generated" if "PYTEST_XDIST_WORKER" in os.environ else own / "made"
    shared.mkdir(exist_ok=True)

    def make(name: str, scenario: "Scenario") -> Path:
        folder = shared / name
        if not folder.exists():
            write(simulate(scenario), own / name)
            try:
                (own / name).rename(folder)
            except OSError:  # another worker was first
                shutil.rmtree(own / name)
        return folder

    return make


@pytest.fixture(scope="session")
def labelled(generated: Callable[[str, "Scenario"], Path]) -> "Runs":
    """`labelled("host.gc")`: the run of that name in corpus.py, generated and analyzed once per session."""
    import corpus
    from labelled_runs import Labelled

    @functools.cache
    def run(name: str) -> Labelled:
        folder = generated(name, corpus.EVERY[name])
        return Labelled(name, json.loads((folder / "label.json").read_text()), folder / "traces")

    return run


@pytest.fixture
def ddprof(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """`ddprof("analyze", path)` -> (exit code, stdout, stderr), in this process."""
    monkeypatch.setattr("sys.excepthook", sys.__excepthook__)

    def invoke(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["ddprof", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli_main.main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return invoke


@pytest.fixture
def straggler_report() -> Report:
    """A synthetic four-rank run of which rank 2's loader is late: every section of the contract is filled."""
    wall = {0: (60_000.0, 2_000.0, 38_000.0), 1: (60_500.0, 2_000.0, 37_500.0), 2: (60_000.0, 2_000.0, 0.0)}
    per_rank = {
        rank: {"wall_us": 100_000.0, "compute": compute, "comm_transfer": transfer, "comm_wait": wait}
        for rank, (compute, transfer, wait) in {**wall, 3: wall[0]}.items()
    }
    per_rank[2]["dataloader"] = 38_000.0
    job = {"wall_us": 100_000.0, "compute": 60_125.0, "comm_transfer": 2_000.0, "comm_wait": 28_375.0}
    fix = Fix("num_workers", "4", "the loader of rank 2 cannot keep up", "pytorch.org/docs/data", "0", "num_workers=4")
    waits = Evidence("rank 2 waits 38 ms for its batch", 2, 0.0, 38_000.0, "DataLoader.__next__")
    late = ("input.straggler", "The loader of rank 2 is late in 4 of 4 steps", (2,), 38_000.0)
    little = ("comm.bandwidth_bound", "All-reduce moves 100 MiB per step", (), 2_000.0)
    headline = "The loader of rank 2 is late by 38 ms in every 100 ms step; 3 ranks wait for it."
    clocks = {"node-a": HostClockInfo(0.0, 0.0, 1.0), "node-b": HostClockInfo(1500.25, 0.1, 12.0)}
    return Report(
        run=RunInfo(
            4, (0, 1, 2, 3), (), {0: "node-a", 1: "node-a", 2: "node-b", 3: "node-b"}, "nccl", "cuda",
            device_name="NVIDIA H100 80GB HBM3", framework=("ddp",), name="mnist", paths=("runs/mnist/rank0.json.gz",),
        ),
        steps=Steps(4, "profiler_step", 100_000.0, (99_000.0, 101_000.0, 100_500.0, 99_500.0)),
        ledger=Ledger(per_rank, {**job, "dataloader": 9_500.0}),
        verdict=Verdict("straggler", headline),
        findings=(
            Finding(*late, Recoverable(36_000.0, 33_000.0, 38_000.0), 0.95, evidence=(waits,), fixes=(fix,)),
            Finding(*little, Recoverable(1_000.0, 500.0, 1_500.0), 0.6),
        ),
        what_if=(model.WhatIf("input.straggler", 64_000.0, 62_000.0, 67_000.0),),
        replay=model.Replay(0.004),
        clock=ClockInfo(clocks, "collective ends"),
        health=(HealthItem("the trace ends early", "its last step is left out", "warning", 3),),
        efficiency={"parallel_efficiency": 0.6, "mfu": float("nan"), "bus_bandwidth_gbps": {"allreduce": 123.4}},
        abstentions=(Abstention("memory.headroom", "no memory events (profile_memory=False)"),),
        checked=("host.gc", "host.sync"),
    )  # fmt: skip


@pytest.fixture
def saved(tmp_path: Path, straggler_report: Report) -> Path:
    """The synthetic report as the JSON file that `--format json` would have written."""
    file = tmp_path / "saved.json"
    file.write_text(json.dumps(to_contract(straggler_report), indent=1))
    return file


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """A headless Chromium that logs its console and its requests."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed (pip install -e '.[dev]')")
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (browser and driver):
        pytest.skip("no chromium and chromedriver (Debian: apt-get install chromium chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for argument in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "window-size=1280,900"):
        options.add_argument(f"--{argument}")
    # One process draws all pages: a new one for each change between a server and a file costs a second.
    options.add_argument("--renderer-process-limit=1")
    options.add_argument("--disable-site-isolation-trials")
    options.add_argument("--disable-features=IsolateOrigins,site-per-process,SpareRendererForSitePerProcess")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    started = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    started.set_script_timeout(300)
    yield started
    started.quit()


@pytest.fixture
def memory_url() -> Iterator[str]:
    """`memory://NAME`, a place in this process where nothing lies yet."""
    import fsspec

    name = uuid.uuid4().hex
    yield f"memory://{name}"
    files = fsspec.filesystem("memory")
    if files.exists(f"/{name}"):
        files.rm(f"/{name}", recursive=True)


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """The address of a server that speaks S3."""
    pytest.importorskip("s3fs")
    pytest.importorskip("moto.server")
    with serving() as address:
        yield address


@pytest.fixture
def bucket(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """`s3://NAME`, a new bucket that this process and those that it starts can read and write."""
    import s3fs

    for name, value in variables(s3_server).items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    name = f"ddprof-{uuid.uuid4().hex[:12]}"
    s3fs.S3FileSystem().mkdir(name)
    yield f"s3://{name}"
    s3fs.S3FileSystem.clear_instance_cache()
