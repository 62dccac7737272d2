"""The pictures of docs/screenshots: every page of the dashboard and of the HTML file, in headless Chromium.

    python docs/take_screenshots.py TRACES [--tuned FOLDER] [--only NAME ...]

TRACES: the 8 ranks of a DLRM step that the docs show. What these do not hold comes from elsewhere: memory, a pipeline
and a change from the shipped samples, Live from a training job that is started here, Tuning from a folder of `ddprof
tune` (--tuned; without it that picture is not taken). All but that one is read from copies.
"""

from __future__ import annotations

import argparse
import base64
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from selenium import webdriver

from ddprof.dashboard.http import make_server
from ddprof.dashboard.onefile.document import render
from ddprof.dashboard.pages.catalogue import PAGES
from ddprof.dashboard.runs.open_run import OpenRun, load, running_ranks
from ddprof.dashboard.runs.served import Runs
from ddprof.dashboard.server.guard import Access

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "docs" / "screenshots"
SAMPLES = ROOT / "sample_traces"
WIDTH_PX, VIEW_PX, TALLEST_PX = 1280, 800, 1600
PATIENCE_S = 60.0
UPLOAD_BYTES = 256 * 2**20  # what `ddprof serve` takes by default
LIVE_STEPS = 20  # seen before the picture of Live is taken
JOB = "torchrun --nproc-per-node=2 workloads/mnist_ddp.py --steps 100000 --fault loader-straggler --fault-ms 60"
MANY_RANKS = "timeline-256-ranks"
GENERATED = ("--ranks", "256", "--events", "1500", "--layers", "4", "--slow-rank", "20", "--slowdown", "1.3")
OPEN_RANKS = [1, 7]  # the first to wait and the last to come
FROM_SAMPLES = {
    "memory": ["full_memory"],
    "pipeline": ["slow_stage"],
    "compare": ["slow_gpu", "healthy"],
    "history": ["healthy", "slow_gpu", "starved_loader"],
}


@dataclass(frozen=True)
class Picture:
    """One file: where it is taken, the theme, and whether the whole page or what a window shows."""

    name: str
    path: str
    theme: str = "light"
    whole: bool = True


def pictures() -> list[Picture]:
    """One of every page; the overview and the timeline in the dark too."""
    named = [(page.path.strip("/") or "overview", page.path) for page in PAGES]
    light = [Picture(name, path, whole=name != "timeline") for name, path in named]
    dark = [
        Picture(f"dark-{name}", path, "dark", whole=False) for name, path in named if name in ("overview", "timeline")
    ]
    return [*light, *dark, Picture(MANY_RANKS, "/timeline", whole=False)]


@contextmanager
def browser() -> Iterator[Any]:
    """Headless Chromium without scroll bars."""
    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(argument)
    # Named, so that selenium does not go and look for one in the network.
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    try:
        yield driver
    finally:
        driver.quit()


@contextmanager
def served(open_runs: list[OpenRun]) -> Iterator[str]:
    """The address of a dashboard of these runs."""
    server = make_server(Runs([], open_runs), 0, Access(), UPLOAD_BYTES)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()


@contextmanager
def running(folder: Path) -> Iterator[list[OpenRun]]:
    """A training job that is under way, before its first trace."""
    program = Path(sys.executable).parent
    command = [str(program / "ddprof"), "run", "--run-dir", str(folder), "--mode", "monitor", "--", *JOB.split()]
    command[command.index("torchrun")] = str(program / "torchrun")
    job = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait(lambda: any(rank.last_step >= LIVE_STEPS for rank in running_ranks(str(folder))), "the job makes no steps")
        yield load([str(folder)])
    finally:
        job.terminate()
        job.wait()


def wait(ready: Callable[[], Any], problem: str) -> None:
    """Return once `ready`; SystemExit where it takes too long."""
    deadline = time.monotonic() + PATIENCE_S
    while not ready():
        if time.monotonic() > deadline:
            raise SystemExit(problem)
        time.sleep(0.1)


def take(driver: Any, address: str, picture: Picture) -> None:
    """Open, wait until it is drawn, write the file."""
    size(driver, VIEW_PX)
    driver.get(address + picture.path)
    driver.add_cookie({"name": "ddprof_theme", "value": picture.theme})
    driver.get(address + picture.path)
    wait(lambda: driver.execute_script("return document.querySelector('#content h1') !== null"), f"no {picture.path}")
    wait(lambda: driver.execute_script(_DRAWN), f"{picture.path} is not drawn")
    if picture.path == "/timeline" and picture.name != MANY_RANKS:
        driver.execute_script(f"for (const r of {OPEN_RANKS}) ddprof.timeline.toggleRank({{ rank: r }})")
    shoot(driver, picture)


_DRAWN = """
  const root = document.getElementById("timeline-root"), plots = [...document.querySelectorAll(".dash-graph")];
  const fetched = !root || (root.dataset.tiles && root.dataset.path !== undefined);
  const loading = document.querySelector("[data-dash-is-loading]");
  return fetched && !loading && plots.every((p) => p.querySelector(".main-svg"));"""


def size(driver: Any, height_px: int) -> None:
    """The size of the page in CSS pixels, whatever the window around it is."""
    metrics = {"width": WIDTH_PX, "height": height_px, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def shoot(driver: Any, picture: Picture) -> None:
    """Write the picture, of the whole page up to TALLEST_PX or of a window."""
    if picture.whole:
        needed = driver.execute_script("return document.documentElement.scrollHeight")
        size(driver, min(TALLEST_PX, max(VIEW_PX, needed)))
    time.sleep(1.0)  # charts and canvas take their new size
    data = driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})["data"]
    (OUT / f"{picture.name}.png").write_bytes(base64.b64decode(data))
    print(picture.name)


def generated(folder: Path) -> list[OpenRun]:
    """256 ranks of which one is slow."""
    program = [sys.executable, str(ROOT / "benchmarks" / "generate_traces.py"), str(folder), *GENERATED]
    subprocess.run(program, check=True, stdout=subprocess.DEVNULL)
    return load([str(folder)])


def take_report(driver: Any, opened: OpenRun, folder: Path, wanted: Callable[[str], bool]) -> None:
    """Two pages of the HTML file, from disk."""
    file = folder / "report.html"
    file.write_text(render(opened), encoding="utf-8")
    for anchor in ("overview", "timeline"):
        if not wanted(f"report-{anchor}"):
            continue
        size(driver, VIEW_PX)
        driver.get("about:blank")
        driver.get(f"{file.as_uri()}#{anchor}")
        tiles = "const root = document.getElementById('timeline-root'); return root.dataset.tiles !== undefined"
        wait(lambda: anchor != "timeline" or driver.execute_script(tiles), "the file's timeline is not drawn")  # noqa: B023
        shoot(driver, Picture(f"report-{anchor}", "", whole=False))


def main() -> None:
    """Take all pictures, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", type=Path)
    parser.add_argument("--tuned", type=Path, metavar="FOLDER")
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME")
    options = parser.parse_args()

    def wanted(name: str) -> bool:
        return not options.only or name in options.only

    OUT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary, browser() as driver:
        folder = Path(temporary)

        def copied(source: Path, name: str) -> str:
            return str(shutil.copytree(source, folder / name, dirs_exist_ok=True, copy_function=shutil.copyfile))

        shown = load([copied(options.traces, options.traces.resolve().name)])
        for picture in filter(lambda p: wanted(p.name), pictures()):
            if picture.name == "tuning":
                if options.tuned is not None:
                    with served(load([str(options.tuned)])) as address:
                        take(driver, address, picture)
                continue
            if picture.name == "live":
                with running(folder / "mnist") as open_runs, served(open_runs) as address:
                    take(driver, address, picture)
                continue
            if picture.name == MANY_RANKS:
                with served(generated(folder / "generated")) as address:
                    take(driver, address, picture)
                continue
            samples = [
                load([copied(SAMPLES / name / "traces", name)])[0] for name in FROM_SAMPLES.get(picture.name, [])
            ]
            with served(samples or shown) as address:
                take(driver, address, picture)
        take_report(driver, shown[0], folder, wanted)


if __name__ == "__main__":
    main()
