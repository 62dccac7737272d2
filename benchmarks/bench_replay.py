"""Speed of the replay: CPU seconds to build the graph of a recorded job and to simulate all its ranks and steps once,
and milliseconds until a what-if is answered: every setting that applies alone, at values that nobody has asked for yet.

    python benchmarks/generate_traces.py /tmp/g64 --ranks 64 --events 50000 --layers 40 --stack
    python benchmarks/bench_replay.py /tmp/g64 --max-s 5

Reads the facts through the cache (a second run starts at once). Writes `benchmarks/results/replay.json`; exits with 1
where `simulate` takes longer than `--max-s`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from process_tree import machine

from ddprof.analyzers.engine import Options, load_runs
from ddprof.analyzers.replay.graph.build import build_graph
from ddprof.analyzers.replay.price import Pricer, pricer
from ddprof.analyzers.replay.simulate import simulate
from ddprof.analyzers.settings.knobs import KNOBS, Knob, Setting
from ddprof.analyzers.settings.predict import predict
from ddprof.analyzers.settings.present import present

RESULTS = Path(__file__).parent / "results" / "replay.json"


def settings_of(knob: Knob, rank: int) -> list[Setting]:
    """Values of one control, as somebody moves it; of a switch its one value."""
    values = ["1.5", "2", "3"] if knob.is_factor else [knob.values] if knob.is_switch else list(knob.choices)
    return [Setting(knob.key, value, (rank,) if knob.needs_ranks else ()) for value in values or ["3", "5", "7"]]


def answers(prices: Pricer) -> dict[str, Any]:
    """Milliseconds of the answers, CPU and wall. The first of a control is apart: it works out what the others use."""
    now, rank = present(prices.measures, {}), prices.measures.job.rank_ids[-1]
    first: dict[str, float] = {}
    cpu_ms, wall_ms = [], []
    for knob in (knob for knob in KNOBS if not knob.lacking(prices.measures, now)):
        for setting in settings_of(knob, rank):
            cpu, wall = time.process_time(), time.perf_counter()
            predict(prices, [setting], now)
            cpu_ms.append((time.process_time() - cpu) * 1e3)
            wall_ms.append((time.perf_counter() - wall) * 1e3)
            first.setdefault(knob.key, round(cpu_ms[-1], 1))
    slowest = dict(sorted(first.items(), key=lambda item: -item[1])[:3])
    return {"answers": len(cpu_ms), "cpu_ms": spread(cpu_ms), "wall_ms": spread(wall_ms), "slowest_first_ms": slowest}


def spread(times_ms: list[float]) -> dict[str, float]:
    """Median, 95th percentile and maximum."""
    p95 = statistics.quantiles(times_ms, n=20, method="inclusive")[-1]
    return {"p50": round(statistics.median(times_ms), 1), "p95": round(p95, 1), "max": round(max(times_ms), 1)}


def main() -> int:
    """Measure one folder."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--max-s", type=float, default=float("inf"))
    options = parser.parse_args()
    run = next(load_runs([options.folder], Options()))
    job = run.job
    _ = run.report  # a page that answers has its report
    start = time.process_time()
    graph = build_graph(job)
    build_s = time.process_time() - start
    times = []
    for _ in range(options.runs):
        start = time.process_time()
        outcome = simulate(graph)
        times.append(time.process_time() - start)
    row = {
        "date": time.strftime("%Y-%m-%d"),
        **machine(),
        "folder": options.folder.name,
        "ranks": len(graph.ranks),
        "steps": len(job.per_step_ns),
        "device_operations": sum(len(rank.ops.row) for rank in graph.ranks),
        "nodes": len(graph.program.kind),
        "build_cpu_s": round(build_s, 3),
        "simulate_cpu_s": round(statistics.median(times), 3),
        "simulate_cpu_s_range": [round(min(times), 3), round(max(times), 3)],
        "replayed_over_measured": round(outcome.span_ns / graph.measured_ns, 6),
        "what_if": answers(pricer(graph, run.measures)),
        "load_1min": round(os.getloadavg()[0], 2),
    }
    RESULTS.write_text(json.dumps(row, indent=2) + "\n")
    print(json.dumps(row))
    return int(row["simulate_cpu_s"] > options.max_s)


if __name__ == "__main__":
    sys.exit(main())
