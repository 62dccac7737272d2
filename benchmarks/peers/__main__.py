"""ddprof, HTA, TraceLens and a plain script over the same labelled runs, in one sitting.

    python -m benchmarks.peers

The first run makes what it needs in build/peers, which is used again: an environment with HTA, a checkout of
TraceLens (the package `tracelens` of PyPI is another project) and the labelled runs. One question that each can be
asked: which rank is late, or else which side of the step to look at: communication, the host side (loader, launching,
checkpoints, garbage), the device. A peer's tables give figures, no answer. They are read in its favour: a rank is
late where the others spend a share T more on waiting, else the larger side above T is named, else the run is healthy;
T is, for each peer, the one of THRESHOLDS with which it is right most often. ddprof's answer is its first finding
above "info", whatever it finds.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
MADE = HERE.parents[1] / "build" / "peers"
sys.path.insert(0, str(HERE.parent))  # benchmarks/ is no installed package

from process_tree import Cost, machine, measure  # noqa: E402

PACKAGES = [
    "HolisticTraceAnalysis==0.5.0",
    "pandas==2.3.*",
    "tqdm",
    "openpyxl",
    "tabulate",
    "orjson",
    "PyYAML",
    "matplotlib",
]
TRACELENS, COMMIT = "https://github.com/AMD-AGI/TraceLens", "171dd747"
LABELLED = ("--count", "40", "--seed", "770000")
RESULTS = HERE.parent / "results" / "peers.json"
THRESHOLDS = (0.03, 0.05, 0.1, 0.15, 0.2, 0.3)
_LATE = "late rank"
# Sides of the step by the beginning of a finding's identifier, the longest first.
_SIDES = {
    **dict.fromkeys(("input.straggler", "straggler", "pipeline.imbalance"), _LATE),
    **dict.fromkeys(("comm", "pipeline"), "communication"),
    **dict.fromkeys(("host", "input"), "host side"),
    **dict.fromkeys(("compute", "memory"), "device"),
}
Answer = tuple[str, frozenset[int]]


@dataclass(frozen=True)
class Row:
    """One tool over all runs. CPU seconds and 10^6 bytes are medians over runs, reading included."""

    tool: str
    right: int
    runs: int
    late_right: int
    late: int
    healthy_accused: int
    healthy: int
    failed: int
    cpu_s: float
    peak_rss_mb: float
    threshold: float | None


def side(identifier: str) -> str:
    """The side of the step that a finding is about."""
    return next(where for start, where in _SIDES.items() if identifier.startswith(start))


def accepted(label: Mapping[str, Any]) -> set[Answer]:
    """Answers that are right: those of any fault and of what is tolerated; ranks only where a rank is late."""
    found: set[Answer] = {(side(identifier), frozenset()) for identifier in label["tolerated_ids"]}
    for fault in label["faults"]:
        for where in map(side, fault["acceptable_ids"]):
            culprits = fault["acceptable_culprits"] if where == _LATE else [[]]
            found |= {(where, frozenset(ranks)) for ranks in culprits}
    healthy = {("", frozenset[int]())} if label["clean"] else set()
    return found | healthy


def read(figures: Mapping[str, Any], threshold: float) -> Answer:
    """A peer's figures as an answer; see the docstring of the module."""
    if figures["late"] is not None and figures["late_share"] >= threshold:
        return _LATE, frozenset((figures["late"],))
    where, share = max(figures["shares"].items(), key=lambda item: item[1])
    return (where, frozenset()) if share >= threshold else ("", frozenset())


def ours(report: Mapping[str, Any]) -> Answer:
    """The first finding above "info" as an answer."""
    first = next((f for f in report["findings"] if f["severity"] != "info"), None)
    if first is None:
        return "", frozenset()
    where = side(first["id"])
    return where, frozenset(first["ranks"] if where == _LATE else ())


def row(tool: str, costs: Sequence[Cost], labels: Sequence[Mapping[str, Any]], threshold: float | None) -> Row:
    """The figures of one tool with one threshold (None: ddprof)."""
    counts: Counter[str] = Counter()
    for cost, label in zip(costs, labels, strict=True):
        answer = ("failed", frozenset[int]())
        if not cost.exit_code:
            document = json.loads(cost.stdout.strip() if threshold is None else cost.stdout.strip().splitlines()[-1])
            answer = ours(document) if threshold is None else read(document, threshold)
        truths = accepted(label)
        is_late = not label["clean"] and all(side(f["id"]) == _LATE and f["culprit_ranks"] for f in label["faults"])
        counts["failed"] += bool(cost.exit_code)
        counts["right"] += answer in truths
        counts["late"] += is_late
        counts["late_right"] += is_late and answer[0] == _LATE and answer in truths
        counts["healthy"] += label["clean"]
        counts["healthy_accused"] += label["clean"] and not cost.exit_code and answer not in truths
    middle = len(costs) // 2
    cpu_s, rss_mb = (sorted(values)[middle] for values in zip(*((c.cpu_s, c.rss_mb) for c in costs), strict=True))
    names = ("right", "late_right", "late", "healthy_accused", "healthy", "failed")
    figures = {name: counts[name] for name in names}
    return Row(tool, runs=len(costs), cpu_s=round(cpu_s, 2), peak_rss_mb=round(rss_mb), threshold=threshold, **figures)


def commands(python: str, tracelens: str) -> dict[str, tuple[list[str], dict[str, str] | None]]:
    """Command and environment of each tool; the folder of traces comes last."""
    own = [sys.executable, "-m", "ddprof.cli.main", "analyze", "--no-cache", "--format", "json"]
    there = {**os.environ, "PYTHONPATH": tracelens}
    return {
        "ddprof": (own, None),
        "HTA": ([python, str(HERE / "hta_answer.py")], None),
        "TraceLens": ([python, str(HERE / "tracelens_answer.py")], there),
        "plain script": ([sys.executable, str(HERE / "plain_rules.py")], None),
    }


def prepare() -> None:
    """Make what is missing below MADE; each step's folder appears when it is whole."""
    checkout = ["git", "-C", "{}", "checkout", "-q"]
    steps = {
        "python": ([sys.executable, "-m", "venv", "{}"], ["{}/bin/python", "-m", "pip", "install", "-q", *PACKAGES]),
        "TraceLens": (
            ["git", "clone", "-q", "-n", "--filter=blob:none", TRACELENS, "{}"],
            [*checkout, COMMIT, "--", "TraceLens"],
        ),
        "labelled": ([sys.executable, str(HERE.parent / "oracle" / "generate.py"), "{}", *LABELLED],),
    }
    MADE.mkdir(parents=True, exist_ok=True)
    for name, calls in steps.items():
        done = MADE / f"{name}.done"
        if not done.exists():
            shutil.rmtree(MADE / name, ignore_errors=True)
            for call in calls:
                subprocess.run([part.format(MADE / name) for part in call], check=True)
            done.touch()


def table(rows: Iterable[Row]) -> str:
    """The rows as Markdown, as they stand in docs/comparison.md."""
    lines = [
        "| | right | late ranks right | healthy accused | failed | CPU s | peak MB |",
        "|---|---|---|---|---|---|---|",
    ]
    for each in rows:
        cells = (
            f"{each.right} of {each.runs} | {each.late_right} of {each.late} | {each.healthy_accused} of {each.healthy}"
        )
        lines.append(f"| {each.tool} | {cells} | {each.failed} | {each.cpu_s} | {each.peak_rss_mb:.0f} |")
    return "\n".join(lines)


def main() -> None:
    """Run every tool on every run, in turn, write the result and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.parse_args()
    prepare()
    places = sorted((MADE / "labelled").rglob("label.json"))
    labels = [json.loads(place.read_text()) for place in places]
    costs: dict[str, list[Cost]] = {}
    for place in places:
        for tool, (command, environment) in commands(str(MADE / "python/bin/python"), str(MADE / "TraceLens")).items():
            costs.setdefault(tool, []).append(measure([*command, str(place.parent / "traces")], environment))
    rows = []
    for tool, each in costs.items():
        tried = [None] if tool == "ddprof" else list(THRESHOLDS)
        rows.append(max((row(tool, each, labels, threshold) for threshold in tried), key=lambda r: r.right))
    result = {
        "date": time.strftime("%Y-%m-%d"),
        **machine(),
        "ddprof": importlib.metadata.version("ddprof"),
        "runs": len(places),
        "rows": [asdict(each) for each in rows],
    }
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")
    print(table(rows))


if __name__ == "__main__":
    main()
