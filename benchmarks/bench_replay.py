"""Speed of the replay: CPU seconds to build the graph of a recorded job and to simulate all its ranks and steps once.

    python benchmarks/generate_traces.py /tmp/g64 --ranks 64 --events 50000 --layers 40 --stack
    python benchmarks/bench_replay.py /tmp/g64 --max-s 5

Reads the facts through the cache (a second run starts at once). Writes `benchmarks/results/replay.json`; exits with 1
where `simulate` takes longer than `--max-s`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

from process_tree import machine

from ddprof.analyzers.engine import read_facts
from ddprof.analyzers.job.assemble import job_facts
from ddprof.analyzers.replay.graph.build import build_graph
from ddprof.analyzers.replay.simulate import simulate
from ddprof.readers.admission import discover

RESULTS = Path(__file__).parent / "results" / "replay.json"


def main() -> int:
    """Measure one folder."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--max-s", type=float, default=float("inf"))
    options = parser.parse_args()
    results = map(read_facts, discover([options.folder]).sources)
    job = job_facts([result.facts for result in results if result.facts is not None])
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
    }
    RESULTS.write_text(json.dumps(row, indent=2) + "\n")
    print(json.dumps(row))
    return int(row["simulate_cpu_s"] > options.max_s)


if __name__ == "__main__":
    sys.exit(main())
