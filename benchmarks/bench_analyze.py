"""Cost of `ddprof analyze` on many ranks, files to verdict: CPU seconds, wall seconds, peak memory of all processes.

    python benchmarks/generate_traces.py /tmp/g8 --ranks 8 --events 250000 --layers 40 --stack --plain
    python benchmarks/generate_traces.py /tmp/g64 --ranks 64 --events 50000 --layers 40 --stack
    python benchmarks/bench_analyze.py /tmp/g8 --runs 3 --max-cpu-s 8 --max-mb 300
    python benchmarks/bench_analyze.py /tmp/g64 --runs 3 --max-cpu-s 15 --max-mb 400
    python benchmarks/job_traces.py /tmp/fsdp8 --job fsdp
    python benchmarks/bench_analyze.py /tmp/fsdp8 --runs 5 --before ../before/.venv/bin/python --max-growth 0.05

Every run is a fresh process without cache. `--before` names the interpreter of an environment with another state of
ddprof, which is measured in turn with this one: the fields that end in `_before` are its. Let both write bytecode
first. Results go to `benchmarks/results/analyze.json`, by folder name, and as one more line to `history.jsonl`.
Exits with 1 where a bound is passed, a verdict does not name the slow rank of `FOLDER.truth.json`, or the least CPU
time or memory is greater than before by more than `--max-growth`.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from process_tree import Cost, machine, measure

import ddprof

RESULTS = Path(__file__).parent / "results" / "analyze.json"
HISTORY = RESULTS.with_name("history.jsonl")


def names_the_slow_rank(output: str, folder: Path) -> bool | None:
    """True where the JSON report names exactly the slow rank of the truth file; None without such a file."""
    truth = folder.with_name(folder.name + ".truth.json")
    if not truth.exists():
        return None
    slow = json.loads(truth.read_text())["slow_rank"]
    findings = json.loads(output)["findings"]
    return bool(findings) and any(f["id"].startswith("straggler.") and f["ranks"] == [slow] for f in findings)


def summarise(folder: Path, runs: list[Cost]) -> dict[str, Any]:
    """Medians over the runs; memory is the worst run's."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "ddprof": ddprof.__version__,
        "python": platform.python_version(),
        **machine(),
        "files": len([p for p in folder.iterdir() if p.is_file()]),
        "cpu_s": round(statistics.median(run.cpu_s for run in runs), 2),
        "cpu_s_range": [round(min(run.cpu_s for run in runs), 2), round(max(run.cpu_s for run in runs), 2)],
        "wall_s": round(statistics.median(run.wall_s for run in runs), 2),
        "peak_rss_mb": round(max(run.rss_mb for run in runs), 1),
        "peak_pss_mb": round(max(run.pss_mb for run in runs), 1),
        "names_the_slow_rank": names_the_slow_rank(runs[-1].stdout, folder),
        "runs": len(runs),
    }


def command(python: str, options: argparse.Namespace) -> list[str]:
    """One analysis by an interpreter."""
    given = [python, "-m", "ddprof.cli.main", "analyze", str(options.folder), "--no-cache", "--format", "json"]
    return given + (["--workers", str(options.workers)] if options.workers else [])


def in_turn(options: argparse.Namespace) -> tuple[list[Cost], list[Cost]]:
    """The runs of this environment, and those of the one before it where there is one."""
    apart = {"PYTHONSAFEPATH": "1"}  # each its own ddprof, not the one of the folder in which this is called
    runs, before = [], []
    for _ in range(options.runs):
        before += [measure(command(options.before, options), apart)] if options.before else []
        runs.append(measure(command(sys.executable, options), apart))
    return runs, before


def least(runs: list[Cost]) -> dict[str, float]:
    """Least CPU time and memory of the runs, to which other processes cannot add."""
    return {
        "cpu_s_least": round(min(run.cpu_s for run in runs), 2),
        "rss_mb_least": round(min(run.rss_mb for run in runs), 1),
        "pss_mb_least": round(min(run.pss_mb for run in runs), 1),
    }


def has_grown(row: dict[str, Any], limit: float) -> bool:
    """True where the least CPU time or memory exceeds the other state's by more than a share."""
    return any(row[key] > (1 + limit) * row[f"{key}_before"] for key in ("cpu_s_least", "pss_mb_least"))


def main() -> int:
    """Measure one folder, keep the row, compare it with the bounds."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--workers", type=int)
    parser.add_argument("--max-cpu-s", type=float, default=float("inf"))
    parser.add_argument("--max-mb", type=float, default=float("inf"))
    parser.add_argument("--before", metavar="PYTHON", help="interpreter of another state of ddprof, measured in turn")
    parser.add_argument("--max-growth", type=float, default=float("inf"), help="share by which it may cost more")
    options = parser.parse_args()
    runs, before = in_turn(options)
    if any(run.exit_code for run in (*runs, *before)):
        print(f"ddprof analyze ended with {[run.exit_code for run in (*runs, *before)]}", file=sys.stderr)
        return 1
    row = summarise(options.folder, runs)
    if before:
        row |= least(runs) | {f"{key}_before": value for key, value in least(before).items()}
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    RESULTS.write_text(json.dumps({**known, options.folder.name: row}, indent=2) + "\n")
    with HISTORY.open("a") as history:
        history.write(json.dumps({"folder": options.folder.name, **row}) + "\n")
    print(json.dumps(row))
    if before and has_grown(row, options.max_growth):
        return 1
    over = row["cpu_s"] > options.max_cpu_s or row["peak_rss_mb"] > options.max_mb
    return int(over or row["names_the_slow_rank"] is False)


if __name__ == "__main__":
    sys.exit(main())
