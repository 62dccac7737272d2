"""Speed and memory of the Kineto reader: uncompressed MB/s, CPU seconds, peak memory, one fresh process per run.

    python benchmarks/generate_traces.py /tmp/r1 --ranks 1 --events 250000 --layers 40 --stack
    python benchmarks/bench_reader.py /tmp/r1/rank0.json.gz --runs 5

Writes `benchmarks/results/reader.json`. CPU seconds (user + system, without imports) are the figure to compare: wall
time depends on what else the machine does.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results" / "reader.json"


def measure(path: Path) -> dict[str, Any]:
    """Read one file in this process: CPU and wall seconds, peak memory in MB, events, uncompressed bytes."""
    from ddprof.readers import discover, read
    from ddprof.readers.files.streams import open_blocks

    (source,) = discover([path]).sources
    idle_mb = _peak_mb()
    cpu, wall = time.process_time(), time.perf_counter()
    trace = read(source)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    peak_mb = _peak_mb()
    with open_blocks(str(path)) as blocks:
        size_bytes = sum(map(len, blocks))
    return {
        "cpu_s": cpu,
        "wall_s": wall,
        "peak_mb": peak_mb,
        "idle_mb": idle_mb,
        "events": sum(trace.top["categories"].values()),
        "kept_events": len(trace.events),
        "text_bytes": size_bytes,
    }


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def summarise(path: Path, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The medians and ranges of several runs."""
    cpu = [run["cpu_s"] for run in runs]
    last = runs[-1]
    return {
        "file": path.name,
        "events": last["events"],
        "text_mb": round(last["text_bytes"] / 1e6, 1),
        "cpu_s": round(statistics.median(cpu), 3),
        "cpu_s_range": [round(min(cpu), 3), round(max(cpu), 3)],
        "mb_per_cpu_s": round(last["text_bytes"] / 1e6 / statistics.median(cpu), 1),
        "peak_mb": round(max(run["peak_mb"] for run in runs), 1),
        "before_mb": round(min(run["idle_mb"] for run in runs), 1),
        "runs": len(runs),
    }


def main() -> None:
    """Measure every file in fresh processes and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--once", action="store_true", help="measure in this process and print one JSON line")
    options = parser.parse_args()
    if options.once:
        print(json.dumps(measure(options.files[0])))
        return
    rows = []
    for path in options.files:
        command = [sys.executable, __file__, str(path), "--once"]
        outputs = [subprocess.run(command, check=True, capture_output=True, text=True) for _ in range(options.runs)]
        rows.append(summarise(path, [json.loads(output.stdout) for output in outputs]))
        print(json.dumps(rows[-1]))
    RESULTS.parent.mkdir(exist_ok=True)
    machine = {"python": platform.python_version(), "machine": platform.machine()}
    RESULTS.write_text(json.dumps({**machine, "files": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
