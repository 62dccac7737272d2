"""Cost of starting: CPU seconds of fresh interpreters, the least of N, with a budget for each command.

    python benchmarks/startup.py [--runs 10]

Prints one line each and exits with 1 over budget. The least, because other work on the machine only ever adds time; let
a first run write bytecode. `python -X importtime -m ddprof --help` says where it goes.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from process_tree import measure

SAMPLE = str(Path(__file__).parents[1] / "sample_traces" / "late_loader")
CASES = {
    "python -c pass": (["-c", "pass"], None),
    "import ddprof": (["-c", "import ddprof"], 0.15),
    "ddprof --version": (["-m", "ddprof", "--version"], 0.1),
    "ddprof --help": (["-m", "ddprof", "--help"], 0.1),
    "ddprof explain": (["-m", "ddprof", "explain", "host.sync"], 0.5),
    "ddprof analyze, a small sample": (["-m", "ddprof", "analyze", SAMPLE, "--no-cache"], 0.5),
    "ddprof compare, two samples": (["-m", "ddprof", "compare", SAMPLE, SAMPLE], 0.7),
}


def least_cpu_s(arguments: list[str], runs: int) -> float:
    """CPU time of the cheapest of `runs` fresh interpreters, s."""
    return min(measure([sys.executable, *arguments]).cpu_s for _ in range(runs))


def main() -> int:
    """Measure every case; the interpreter's own start is taken off the import."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    runs = parser.parse_args().runs
    bare = least_cpu_s(CASES["python -c pass"][0], runs)
    over = False
    for name, (arguments, budget_s) in CASES.items():
        whole = least_cpu_s(arguments, runs)
        own = whole - bare if name.startswith("import") else whole
        verdict = "" if budget_s is None else f"   budget {budget_s:.2f} s: {'ok' if own <= budget_s else 'OVER'}"
        over |= budget_s is not None and own > budget_s
        print(f"{name:<31} {own:.3f} s{verdict}")
    return int(over)


if __name__ == "__main__":
    sys.exit(main())
