"""Runs equal jobs twice and counts how often `ddprof compare` calls one of two equal runs faster or slower.

    python benchmarks/equal_pairs.py OUT [--count 40] [--seed 1] [--busy 1] [--steps 50]

The jobs are the healthy twins of `benchmarks.strangers`, each of another structure, two ranks over gloo. Before and
after one job another may change the machine's pace: the pairs run right after one another. `--busy`: so many processes
that compute beside them. Compared is what a user sees of a step ("faster", "slower", or neither); pairs that OUT holds
already are not run again. Exits with 1 where more pairs differ than the 5 % that a 95 % interval allows.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.strangers.execute import run
from benchmarks.strangers.spec import draw
from ddprof.significance import binomial_tail

ALLOWED = 0.05  # of equal pairs: what lies outside a 95 % interval
CHANCE = 0.05  # of at least so many different pairs, where the rate is the allowed one
_BURN = "while True: pass"


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """So many processes that compute meanwhile."""
    started = [subprocess.Popen([sys.executable, "-c", _BURN]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def compared(first: Path, second: Path) -> dict[str, Any]:
    """The document of `ddprof compare` on two run folders."""
    command = [sys.executable, "-m", "ddprof.cli.main", "compare", str(first), str(second), "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"ddprof compare ended with {done.returncode}: {done.stderr.strip()}")
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the pairs and print each, then the count; 1 where too many differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("--steps", type=int, default=50)
    options = parser.parse_args(arguments)
    different = done = 0
    for number in range(options.count):
        spec, folder = draw(options.seed, number, 2, options.steps), options.out.resolve() / f"{number:04}"
        with busy(options.busy):
            failed = [said for turn in ("a", "b") if (said := run(spec, folder / turn, rounds=0, names=["twin"]))]
        if failed:
            print(f"{number:04} not run: {failed[0]}", flush=True)
            continue
        document = compared(folder / "a" / "twin" / "latest", folder / "b" / "twin" / "latest")
        step, done = document["step"], done + 1
        different += step["outcome"] in ("faster", "slower")
        words = "  ".join(f"{step[name] / 1e3:.2f}" for name in ("before_us", "after_us"))
        print(f"{number:04} {spec.structure}: {words} ms by {document['step_by']}: {step['outcome']}", flush=True)
    print(f"{different} of {done} equal pairs called faster or slower ({ALLOWED:.0%} allowed)")
    return int(done == 0 or binomial_tail(different, done, ALLOWED) < CHANCE)


if __name__ == "__main__":
    sys.exit(main())
