"""Cost of many small ranks: CPU seconds, wall seconds and memory of `ddprof analyze` by number of ranks.

    python benchmarks/bench_ranks.py /tmp/ranks --ranks 64 256 1024 4096
    python benchmarks/bench_ranks.py /tmp/ranks --ranks 1024 --runs 3 --before ../before/.venv/bin/python

The traces (4,000 events a rank, `generate_traces.py`) are written below the folder where they are not there yet. Of
each number of ranks: an analysis without cache, the memory of its largest process that reads (the parent's grows with
the facts of all ranks, theirs must not), the analysis that keeps the facts, and the one that finds them. `--before`
names the interpreter of another state of ddprof, measured in turn. Results go to `benchmarks/results/ranks.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from process_tree import Cost, machine, measure

import ddprof

RESULTS = Path(__file__).parent / "results" / "ranks.json"
GENERATOR = Path(__file__).parent / "generate_traces.py"
APART = {"PYTHONSAFEPATH": "1"}  # each interpreter its own ddprof


def traces(below: Path, ranks: int) -> Path:
    """The folder with so many ranks, written if it is not there."""
    folder = below / f"ranks{ranks}"
    if not folder.with_name(folder.name + ".truth.json").exists():  # written last
        size = ["--ranks", str(ranks), "--events", "4000", "--layers", "4", "--stack"]
        subprocess.run([sys.executable, str(GENERATOR), str(folder), *size], check=True, stdout=subprocess.DEVNULL)
    return folder


def analysis(python: str, folder: Path, *options: str) -> Cost:
    """One analysis, in a process of its own. Raises SystemExit where it fails."""
    command = [python, "-m", "ddprof.cli.main", "analyze", str(folder), "--format", "json", *options]
    cost = measure(command, APART)
    if cost.exit_code:
        raise SystemExit(f"{' '.join(command)} ended with {cost.exit_code}")
    return cost


def figures(costs: Sequence[Cost]) -> dict[str, Any]:
    """CPU seconds of every run, memory of the largest; what other processes cannot add to is the least CPU time."""
    return {
        "cpu_s": sorted(round(cost.cpu_s, 2) for cost in costs),
        "wall_s": sorted(round(cost.wall_s, 1) for cost in costs),
        "peak_rss_mb": round(max(cost.rss_mb for cost in costs), 1),
        "peak_pss_mb": round(max(cost.pss_mb for cost in costs), 1),
        "peak_child_rss_mb": round(max(cost.child_rss_mb for cost in costs), 1),
    }


def row(folder: Path, runs: int, before: str | None) -> dict[str, Any]:
    """All figures of one folder; those of the state before in turn with this one's."""
    fresh: dict[str, list[Cost]] = {"no_cache": [], "no_cache_before": []}
    for _ in range(runs):
        if before:
            fresh["no_cache_before"].append(analysis(before, folder, "--no-cache"))
        fresh["no_cache"].append(analysis(sys.executable, folder, "--no-cache"))
    found = {name: figures(costs) for name, costs in fresh.items() if costs}
    if before:
        same = fresh["no_cache"][-1].stdout == fresh["no_cache_before"][-1].stdout
        found["reports_are_the_same"] = same  # type: ignore[assignment]
    with tempfile.TemporaryDirectory() as cache:
        found["keeping"] = figures([analysis(sys.executable, folder, "--cache", cache)])
        found["kept"] = figures([analysis(sys.executable, folder, "--cache", cache) for _ in range(runs)])
    return found


def main() -> int:
    """Measure each number of ranks and keep the rows."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("below", type=Path)
    parser.add_argument("--ranks", type=int, nargs="+", default=[64, 256, 1024, 4096])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--before", metavar="PYTHON", help="interpreter of another state of ddprof, measured in turn")
    options = parser.parse_args()
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for ranks in options.ranks:
        found = row(traces(options.below, ranks), options.runs, options.before)
        about = {"date": time.strftime("%Y-%m-%d"), "ddprof": ddprof.__version__, "python": platform.python_version()}
        known[str(ranks)] = {**about, **machine(), "load": round(os.getloadavg()[0], 1), **found}
        RESULTS.write_text(json.dumps(known, indent=2) + "\n")
        print(ranks, json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
