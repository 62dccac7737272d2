"""`ddprof analyze` beside HolisticTraceAnalysis: the same files, one after the other, in the same run.

    python -m venv /tmp/hta && /tmp/hta/bin/pip install HolisticTraceAnalysis==0.5.0 'pandas==2.3.*'
    python benchmarks/generate_traces.py /tmp/g8 --ranks 8 --events 250000 --layers 40 --stack --plain
    python benchmarks/bench_hta.py /tmp/g8 /tmp/g64 --hta-python /tmp/hta/bin/python

HTA needs an environment of its own, with pandas 2.3: it fails on pandas 3. Its stragglers are listed beside ours; the
truth file beside the folder says who it is. What is better of `--runs` counts, for either tool: other processes only
add to CPU time. Results go to `benchmarks/results/hta.json`, by folder.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from process_tree import Cost, machine, measure

RESULTS = Path(__file__).parent / "results" / "hta.json"
ANALYSES = Path(__file__).parent / "hta_analyses.py"
_VERSIONS = "import importlib.metadata as m; print(m.version('HolisticTraceAnalysis'), m.version('pandas'))"


def row(cost: Cost) -> dict[str, float]:
    """The figures of one run."""
    return {
        "cpu_s": round(cost.cpu_s, 2),
        "wall_s": round(cost.wall_s, 2),
        "peak_rss_mb": round(cost.rss_mb, 1),
        "peak_pss_mb": round(cost.pss_mb, 1),
    }


def json_of(cost: Cost, what: str) -> dict[str, Any]:
    """The JSON object on the last line of a run, or of all its output. Raises SystemExit where the run failed."""
    if cost.exit_code:
        raise SystemExit(f"{what} ended with {cost.exit_code}")
    text = cost.stdout.strip()
    value: dict[str, Any] = json.loads(text if text.startswith("{") else text.splitlines()[-1])
    return value


def main() -> None:
    """Measure both tools in turn and write the comparison of each folder."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--hta-python", required=True)
    parser.add_argument("--runs", type=int, default=2)
    options = parser.parse_args()
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for folder in options.folders:
        known[folder.name] = compared(folder, options.hta_python, options.runs)
        RESULTS.write_text(json.dumps(known, indent=2) + "\n")
        print(folder.name, json.dumps(known[folder.name]))


def compared(folder: Path, hta_python: str, runs: int) -> dict[str, Any]:
    """Both tools on one folder, in turn."""
    versions = subprocess.run([hta_python, "-c", _VERSIONS], check=True, capture_output=True, text=True)
    hta_version, pandas_version = versions.stdout.split()
    our_command = [sys.executable, "-m", "ddprof.cli.main", "analyze", str(folder), "--no-cache", "--format", "json"]
    pairs = [(measure(our_command), measure([hta_python, str(ANALYSES), str(folder)])) for _ in range(runs)]
    ours, theirs = (min(costs, key=lambda cost: cost.cpu_s) for costs in zip(*pairs, strict=True))
    report = json_of(ours, "ddprof analyze")
    return {
        "date": time.strftime("%Y-%m-%d"),
        **machine(),
        "load": round(os.getloadavg()[0], 1),
        "runs": runs,
        "files": len([p for p in folder.iterdir() if p.is_file()]),
        "hta": {"version": hta_version, "pandas": pandas_version, **row(theirs)},
        "ddprof": {**row(ours), "findings": [{"id": f["id"], "ranks": f["ranks"]} for f in report["findings"]]},
        "hta_stragglers": json_of(theirs, "HTA")["stragglers"],
        "ratio_cpu": round(theirs.cpu_s / ours.cpu_s, 1),
        "ratio_rss": round(theirs.rss_mb / ours.rss_mb, 1),
    }


if __name__ == "__main__":
    main()
