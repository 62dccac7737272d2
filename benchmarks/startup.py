"""How long `import ddprof` and `ddprof --help` take, best of N fresh interpreters (budgets: 0.15 s and 0.5 s).

    python benchmarks/startup.py [--runs 10]

Prints one line each and exits with 1 over budget. Best of N, because other work on the machine only ever adds time.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

CASES = {
    "python -c pass": (["-c", "pass"], None),
    "import ddprof": (["-c", "import ddprof"], 0.15),
    "ddprof --version": (["-m", "ddprof.cli.main", "--version"], 0.5),
    "ddprof --help": (["-m", "ddprof.cli.main", "--help"], 0.5),
}


def best_s(arguments: list[str], runs: int) -> float:
    """Shortest wall time of `runs` fresh interpreters, in seconds."""
    times = []
    for _ in range(runs):
        started = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - started)
    return min(times)


def main() -> int:
    """Measure every case; the interpreter's own start is taken off the import."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    runs = parser.parse_args().runs
    bare = best_s(CASES["python -c pass"][0], runs)
    over = False
    for name, (arguments, budget_s) in CASES.items():
        whole = best_s(arguments, runs)
        own = whole - bare if name.startswith("import") else whole
        verdict = "" if budget_s is None else f"   budget {budget_s:.2f} s: {'ok' if own <= budget_s else 'OVER'}"
        over |= budget_s is not None and own > budget_s
        print(f"{name:<18} {own:.3f} s{verdict}")
    return int(over)


if __name__ == "__main__":
    sys.exit(main())
