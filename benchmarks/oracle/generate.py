"""Write a corpus: `python benchmarks/oracle/generate.py OUT --count 200 --seed 1000 [--kinds KIND ...]`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

if __package__ in (None, ""):  # run as a script: make the repository importable
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.oracle.kinds import EVERY_KIND, WITH_PAUSES, NoScenarioError, scenario
from benchmarks.oracle.simulate import simulate
from benchmarks.oracle.write import write


def main(arguments: Sequence[str] | None = None) -> int:
    """Write what the command line asks for, one line per scenario on standard error. 1 if a seed was skipped."""
    parser = argparse.ArgumentParser(description="Generate multi-rank GPU traces with known truth.")
    parser.add_argument("out", nargs="?", type=Path, help="folder to write to, one subfolder per scenario")
    parser.add_argument("--count", type=int, default=len(EVERY_KIND))
    parser.add_argument("--seed", type=int, default=1000, help="seed of the first scenario; the next has the next seed")
    parser.add_argument("--kinds", nargs="+", metavar="KIND", help="only these, in turn (default: all, in turn)")
    parser.add_argument(
        "--run-ahead", action="store_true", help="scripts never wait for the device: their hosts run ahead"
    )
    parser.add_argument("--list", action="store_true", help="print the kinds and stop")
    options = parser.parse_args(arguments)
    if options.list:
        print("\n".join(EVERY_KIND))
        return 0
    if options.out is None:
        parser.error("OUT is required unless --list is given")
    unknown = [kind for kind in options.kinds or () if kind not in EVERY_KIND]
    if unknown:
        parser.error(f"unknown kind: {', '.join(unknown)} (see --list)")
    kinds = options.kinds or [kind for kind in EVERY_KIND if not (options.run_ahead and kind in WITH_PAUSES)]
    skipped = 0
    for index in range(options.count):
        began, kind, seed = time.perf_counter(), kinds[index % len(kinds)], options.seed + index
        try:
            found = scenario(seed, kind, options.run_ahead)
        except NoScenarioError as error:
            print(f"{seed} {kind} skipped: {error}", file=sys.stderr)
            skipped += 1
            continue
        result = write(simulate(found), options.out / f"{seed}_{kind}")
        print(
            f"{seed} {kind} {result['parallelism']} {result['world_size']} ranks "
            f"{result['recoverable_us'] / result['step_us']:.1%} {result['events']} events "
            f"{time.perf_counter() - began:.1f} s",
            file=sys.stderr,
        )
    return 1 if skipped else 0


if __name__ == "__main__":
    raise SystemExit(main())
