"""Speed of the timeline: index build, tiles, and the first picture, zooms and pans in a real Chromium.

    python benchmarks/bench_timeline.py [--slices 10000000] [--ranks 8] [--browser]
    python benchmarks/bench_timeline.py --run FOLDER
    python benchmarks/bench_timeline.py --file REPORT.html

The slices are synthetic (exponential durations, three streams a rank); nothing else of a run is made.
Targets: first picture under 1.0 s, zoom or pan under 100 ms, whatever the number of slices. With --browser the figures
are written to `benchmarks/results/timeline.json`. `--run` measures a run of its own instead, of very many ranks
(benchmarks/README.md says how one is made): first picture under 1.0 s, and at the 95th percentile 16 ms of the main
thread in each frame that scrolls, zooms or pans. `--file`: main-thread time until a report in one file is open, 300 ms.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the checkout, where nothing is installed

from process_tree import machine

from ddprof.causes import CAUSE_CODE
from ddprof.dashboard.timeline.categories import CATEGORIES
from ddprof.dashboard.timeline.index import SliceIndex, Slices
from ddprof.dashboard.timeline.lanes import Lane, Timeline
from ddprof.dashboard.timeline.tiles import encode

STREAMS = (
    ("stream 0: compute", "compute"),
    ("stream 1: communication", "comm_transfer"),
    ("stream 2: copies", "memcpy"),
)
NAMES = tuple(f"kernel_{i}" for i in range(200))
BINS = 1700  # what a window of 1280 pixels asks for
MOVES = 4
RESULTS = Path(__file__).parent / "results" / "timeline.json"
WINDOWS = (1.0, 0.2, 0.02, 0.0002)
FRAMES = 180
MOVED = {  # what a frame does to the timeline `t`
    "scroll": "t.scroller.scrollTop += i < 90 ? 40 : -40",
    "zoom": "t.zoom(i < 90 ? 0.97 : 1 / 0.97)",
    "pan": "t.pan(i < 90 ? 0.01 : -0.01)",
}
# Of each frame the time from its begin until the main thread is free again, and to the frame after it.
DRIVE = """
  const [count, move, done] = [arguments[0], new Function("i", "t", arguments[1]), arguments[2]];
  const [busy, apart, free] = [[], [], new MessageChannel()];
  let [i, begun] = [0, 0];
  free.port1.onmessage = () => busy.push(performance.now() - begun);
  const frame = (now) => {
    if (i) apart.push(now - begun);
    if (i === count) return setTimeout(() => done([busy, apart]), 300);
    begun = now;
    move(i++, ddprof.timeline);
    requestAnimationFrame(frame);
    free.port2.postMessage(0);
  };
  requestAnimationFrame(frame);"""


def synthetic(slices: int, ranks: int) -> Timeline:
    """A timeline of about `slices` slices in three lanes a rank."""
    random = np.random.default_rng(7)
    each = slices // (ranks * len(STREAMS))
    lanes, parts = [], []
    for rank in range(ranks):
        for label, cause in STREAMS:
            edges = np.cumsum(random.exponential(5_000, 2 * each).astype(np.int64) + 1)
            category = np.full(each, CAUSE_CODE[cause])
            category[random.random(each) < 0.1] = CAUSE_CODE["comm_wait"]
            parts.append(
                Slices(edges[0::2], edges[1::2], category, random.integers(0, len(NAMES), each), np.arange(each))
            )
            lanes.append(Lane(rank, rank, f"node-{rank // 8}", "stream", label, each))
    index = SliceIndex(parts, len(CATEGORIES))
    return Timeline(tuple(lanes), NAMES, index, 0, ())


def tile_times(timeline: Timeline) -> dict[str, Any]:
    """Milliseconds and bytes of one view at several zooms, at most 60 lanes (more fit on no screen)."""
    lanes = list(range(min(60, len(timeline.lanes))))
    span, found = timeline.index.hi_ns - timeline.index.lo_ns, {}
    for share in WINDOWS:
        lo = timeline.index.lo_ns + int(span * (1 - share) / 2)
        times = []
        for _ in range(5):
            started = time.perf_counter()
            body = encode(timeline, lanes, lo, lo + max(1, int(span * share)), BINS)
            times.append((time.perf_counter() - started) * 1e3)
        found[f"{share:.2%}"] = {"median_ms": round(statistics.median(times), 1), "bytes": len(body)}
    return found


def chromium() -> Any:
    """A headless Chromium of 1280 x 900."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1280,900"):
        options.add_argument(argument)
    # Named, so that selenium does not go and look for one in the network.
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))


def browser_times(timeline: Timeline) -> dict[str, Any]:
    """Navigation to first picture, and the zooms, in headless Chromium."""
    from ddprof.analyzers.engine import LoadedRun
    from ddprof.analyzers.replay.critical import CRITICAL
    from ddprof.dashboard.http import make_server
    from ddprof.dashboard.runs.open_run import OpenRun
    from ddprof.dashboard.runs.served import Runs
    from ddprof.dashboard.server.guard import Access
    from ddprof.report.model import Ledger, Report, RunInfo, Steps, Verdict

    ranks = tuple(sorted({lane.rank for lane in timeline.lanes}))
    report = Report(RunInfo(len(ranks), ranks), Steps(1, "none", 1.0), Ledger(), Verdict("none", "synthetic slices"))
    nothing = LoadedRun("synthetic slices", None, ())  # type: ignore[arg-type]  # only that there is a run is asked
    opened = OpenRun(report, nothing, _timeline=timeline, _critical=CRITICAL.empty())
    server = make_server(Runs([], [opened]), 0, Access())
    threading.Thread(target=server.serve_forever, daemon=True).start()
    driver = chromium()
    try:
        first = [_first_picture(driver, server.server_port) for _ in range(3)]
        # Every lane open; without the pause that waits for the hand to rest.
        driver.execute_script("ddprof.timeline.openAll()")
        time.sleep(1.0)
        zooms = [_moved(driver, "zoom(0.2)") for _ in range(MOVES)]
        driver.execute_script("ddprof.timeline.show(...ddprof.timeline.bounds); ddprof.timeline.zoom(0.2)")
        time.sleep(1.0)
        pans = [_moved(driver, "pan(0.2)") for _ in range(MOVES)]
        return {"first_picture_s": [round(s, 2) for s in first], "zoom": zooms, "pan": pans}
    finally:
        driver.quit()
        server.shutdown()


def run_times(folder: str) -> dict[str, Any]:
    """A real run's first picture, the first after its traces were read too, and scrolling: groups closed, and open."""
    from ddprof.dashboard.http import make_server
    from ddprof.dashboard.runs.open_run import load
    from ddprof.dashboard.runs.served import Runs
    from ddprof.dashboard.server.guard import Access

    opened = load([folder])
    opened[0].expect_timeline()  # as `ddprof serve` does while the link is opened
    time.sleep(3.0)
    server = make_server(Runs([], opened), 0, Access())
    threading.Thread(target=server.serve_forever, daemon=True).start()
    driver = chromium()
    try:
        first = [round(_first_picture(driver, server.server_port), 2) for _ in range(4)]
        closed = driver.execute_script("return ddprof.timeline.rows.length")
        frames = {"as opened": _frames(driver)}
        driver.execute_script("const t = ddprof.timeline; t.by = 'none'; t.layout(); t.refetch()")
        time.sleep(1.0)
        rows = driver.execute_script("return ddprof.timeline.rows.length")
        scrolls = [_moved(driver, f"scroller.scrollTop = {(n + 1) * 1500}") for n in range(MOVES)]
        frames["ungrouped"] = _frames(driver)
        painting = driver.execute_script("""
          const begun = performance.now();
          for (let i = 0; i < 20; i++) ddprof.timeline.painter.paint();
          return (performance.now() - begun) / 20;""")
        return {
            "ranks": len(opened[0].job.ranks),
            "slices": len(opened[0].index),
            "first_picture_s": first,
            "rows_at_first": closed,
            "rows_ungrouped": rows,
            "scroll": scrolls,
            "frames": frames,
            "paint_ms": round(painting, 1),
        }
    finally:
        driver.quit()
        server.shutdown()


def _frames(driver: Any) -> dict[str, Any]:
    """Median and 95th percentile, ms: the main thread in a frame, and from frame to frame."""
    told = {}
    for name, move in MOVED.items():
        columns = driver.execute_async_script(DRIVE, FRAMES, move)
        percentiles = ([round(float(p), 1) for p in np.percentile(column, (50, 95))] for column in columns)
        told[name] = dict(zip(("busy_ms", "apart_ms"), percentiles, strict=True))
        time.sleep(1.0)
    return told


def file_times(path: str) -> dict[str, Any]:
    """Main-thread time (ms) of a new browser that opens a report in one file and leaves it alone, five times."""
    times = []
    for _ in range(5):
        driver = chromium()
        try:
            driver.execute_cdp_cmd("Performance.enable", {})
            driver.get(Path(path).resolve().as_uri())
            time.sleep(2.0)
            told = driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
            times += [round(entry["value"] * 1e3) for entry in told if entry["name"] == "TaskDuration"]
        finally:
            driver.quit()
    return {"main_thread_ms": sorted(times), "median_ms": statistics.median(times)}


def _first_picture(driver: Any, port: int) -> float:
    driver.get("about:blank")
    driver.get(f"http://127.0.0.1:{port}/timeline")
    script = (
        "const r=document.getElementById('timeline-root'); return r && r.dataset.tiles ? r.dataset.pictureMs : null"
    )
    deadline = time.monotonic() + 60
    while (found := driver.execute_script(script)) is None:
        if time.monotonic() > deadline:
            raise SystemExit("no picture within 60 s")
        time.sleep(0.02)
    return float(found) / 1e3


def _moved(driver: Any, move: str) -> dict[str, float]:
    """Fetch and paint of one zoom or pan in milliseconds, and the bytes of its tile."""
    driver.execute_script(f"performance.clearResourceTimings(); ddprof.timeline.{move}")
    time.sleep(1.0)
    fetched, sizes = driver.execute_script("""
      const tiles = performance.getEntriesByType("resource").filter((e) => e.name.includes("data/tile"));
      return [ddprof.timeline.root.dataset.fetchMs, tiles.map((e) => e.encodedBodySize)]""")
    return {"fetch_and_paint_ms": float(fetched), "bytes": sizes[-1]}


def main() -> None:
    """Print the measurements as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slices", type=int, default=10_000_000)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--browser", action="store_true", help="also measure in Chromium (needs selenium)")
    parser.add_argument("--run", help="measure this run in Chromium instead of synthetic slices")
    parser.add_argument("--file", help="measure how this report in one file is opened")
    options = parser.parse_args()
    if options.run or options.file:
        load_1min = round(os.getloadavg()[0], 2)
        times = run_times(options.run) if options.run else file_times(options.file)
        print(json.dumps({**machine(), "load_1min": load_1min, **times}, indent=1))
        return
    started = time.perf_counter()
    timeline = synthetic(options.slices, options.ranks)
    found: dict[str, Any] = {
        "date": time.strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        **machine(),
        "load_1min": round(os.getloadavg()[0], 2),
        "slices": len(timeline.index),
        "lanes": len(timeline.lanes),
        "made_and_indexed_s": round(time.perf_counter() - started, 2),
        "tiles": tile_times(timeline),
    }
    if options.browser:
        found["browser"] = browser_times(timeline)
        RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
