"""`ddprof analyze` beside HolisticTraceAnalysis: the same files, one after the other, in the same run.

    python -m venv /tmp/hta && /tmp/hta/bin/pip install HolisticTraceAnalysis==0.5.0 'pandas==2.3.*'
    python benchmarks/generate_traces.py /tmp/g8 --ranks 8 --events 250000 --layers 40 --stack --plain
    python benchmarks/bench_hta.py /tmp/g8 --hta-python /tmp/hta/bin/python

HTA needs an environment of its own, with pandas 2.3: it fails on pandas 3. Its stragglers are listed beside ours; the
truth file beside the folder says who it is. Results go to `benchmarks/results/hta.json`.
"""

from __future__ import annotations

import argparse
import json
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
    """Measure both tools once and write the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--hta-python", required=True)
    options = parser.parse_args()
    versions = subprocess.run([options.hta_python, "-c", _VERSIONS], check=True, capture_output=True, text=True)
    hta_version, pandas_version = versions.stdout.split()
    folder = str(options.folder)
    ours = measure([sys.executable, "-m", "ddprof.cli.main", "analyze", folder, "--no-cache", "--format", "json"])
    report = json_of(ours, "ddprof analyze")
    theirs = measure([options.hta_python, str(ANALYSES), folder])
    result = {
        "date": time.strftime("%Y-%m-%d"),
        **machine(),
        "folder": options.folder.name,
        "files": len([p for p in options.folder.iterdir() if p.is_file()]),
        "hta": {"version": hta_version, "pandas": pandas_version, **row(theirs)},
        "ddprof": {**row(ours), "findings": [{"id": f["id"], "ranks": f["ranks"]} for f in report["findings"]]},
        "hta_stragglers": json_of(theirs, "HTA")["stragglers"],
        "ratio_cpu": round(theirs.cpu_s / ours.cpu_s, 1),
        "ratio_rss": round(theirs.rss_mb / ours.rss_mb, 1),
    }
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
