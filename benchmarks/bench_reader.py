"""Speed and memory of the readers of Kineto's traces and of training logs: uncompressed MB/s, CPU seconds, peak memory,
one fresh process per run.

    python benchmarks/generate_traces.py /tmp/r1 --ranks 1 --events 250000 --layers 40 --stack
    python benchmarks/bench_reader.py /tmp/r1/rank0.json.gz --runs 5
    python benchmarks/bench_reader.py --logs /tmp/logs --log-mb 50    # writes one log of each of LOGS first

Writes `benchmarks/results/reader.json`. CPU seconds (user + system, without imports) are the figure to compare: wall
time depends on what else the machine does.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results" / "reader.json"
LOGS = {
    "megatron": " [{clock}] iteration {n:8d}/ 5000000 | consumed samples: {k:12d} | "
    "elapsed time per iteration (ms): {ms:.1f} | throughput per GPU (TFLOP/s/GPU): {r:.1f} | global batch size: 256 | "
    "lm loss: {loss:.6E} | grad norm: {q:.3f} |",
    "torchtitan": "[rank0]:[titan] {clock},{part:03d} - root - INFO - step: {n:2d}  loss: {loss:7.4f}  "
    "memory: 42.10GiB(44.31%)  tps: {k:,}  tflops: {r:.2f}  mfu: {q:.2f}%",
    "detectron2": "[{clock}] d2.utils.events INFO:  eta: 19:50:42  iter: {n}  total_loss: {loss:.4f}  loss_cls: {q:.4f}"
    "  time: {t:.4f}  data_time: {d:.4f}  lr: 0.04  max_mem: 11811M",
    "nanogpt": "iter {n}: loss {loss:.4f}, time {ms:.2f}ms, mfu {q:.2f}%",
}


def write_logs(folder: Path, megabytes: float) -> list[Path]:
    """Logs of `megabytes` each, every line of them of an iteration of 0.4 s."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(0).random
    for name, line in LOGS.items():
        with (folder / f"{name}.log").open("w", encoding="utf-8") as log:
            at = 0
            while log.tell() < megabytes * 1e6:
                t, at_s = 0.4 + 0.02 * draw(), 1767325445 + at * 0.41
                said = {"t": t, "ms": t * 1e3, "d": 0.01 * draw(), "r": 150 + 20 * draw(), "q": 10 * draw()}
                said |= {"clock": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at_s)), "part": int(at_s * 1e3) % 1000}
                log.write(line.format(n=at, k=at * 256, loss=1 + 9 * draw(), **said) + "\n")
                at += 1
    return [folder / f"{name}.log" for name in LOGS]


def measure(path: Path) -> dict[str, Any]:
    """Read one file in this process: CPU and wall seconds, peak memory in MB, events, uncompressed bytes."""
    from ddprof.readers import discover, read
    from ddprof.readers.files.streams import open_blocks
    from ddprof.readers.source import OnlyLogs
    from ddprof.slices.training_logs.findings.explain import explain_log

    try:
        (source,) = discover([path]).sources
    except OnlyLogs as only:
        (source,) = only.sources
    idle_mb = _peak_mb()
    cpu, wall = time.process_time(), time.perf_counter()
    if source.format == "training_log":
        log = explain_log(source).log
        events = kept = len(log.iterations)
    else:
        trace = read(source)
        events, kept = sum(trace.top["categories"].values()), len(trace.events)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    peak_mb = _peak_mb()
    with open_blocks(str(path)) as blocks:
        size_bytes = sum(map(len, blocks))
    return {
        "cpu_s": cpu,
        "wall_s": wall,
        "peak_mb": peak_mb,
        "idle_mb": idle_mb,
        "events": events,
        "kept_events": kept,
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
    parser.add_argument("files", type=Path, nargs="*")
    parser.add_argument("--logs", type=Path, help="write training logs into this folder, and measure them too")
    parser.add_argument("--log-mb", type=float, default=50.0)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--once", action="store_true", help="measure in this process and print one JSON line")
    options = parser.parse_args()
    if options.once:
        print(json.dumps(measure(options.files[0])))
        return
    rows = []
    for path in [*options.files, *(write_logs(options.logs, options.log_mb) if options.logs else ())]:
        command = [sys.executable, __file__, str(path), "--once"]
        outputs = [subprocess.run(command, check=True, capture_output=True, text=True) for _ in range(options.runs)]
        rows.append(summarise(path, [json.loads(output.stdout) for output in outputs]))
        print(json.dumps(rows[-1]))
    RESULTS.parent.mkdir(exist_ok=True)
    machine = {"python": platform.python_version(), "machine": platform.machine()}
    RESULTS.write_text(json.dumps({**machine, "files": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
