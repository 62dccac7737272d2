"""`python -m benchmarks.strangers run --seed 1 --count 40`; `... judge FOLDER` again, with a changed ddprof."""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.strangers.execute import analyze, run
from benchmarks.strangers.judge import judge
from benchmarks.strangers.spec import draw
from benchmarks.strangers.table import lines
from benchmarks.strangers.write import write


def main(arguments: Sequence[str] | None = None) -> int:
    """Run or judge what the command line asks for; 1 if a script could not be."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.strangers", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run", help="generate scripts, run them and their twins, judge what ddprof says")
    running.add_argument("--seed", type=int, default=1)
    running.add_argument("--count", type=int, default=40)
    running.add_argument("--first", type=int, default=0, help="number of the first script")
    running.add_argument("--ranks", type=int, default=2)
    running.add_argument("--steps", type=int, default=50)
    running.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="cuda: one GPU that all ranks share")
    running.add_argument("--seconds", type=float, default=math.inf, help="no script begins later")
    running.add_argument("--unread", action="store_true", help="record alone: `judge` elsewhere")
    running.add_argument("--rounds", type=int, default=2, help="bare runs of both, in turn; 0: times under ddprof")
    running.add_argument("--out", type=Path, default=Path("build/strangers"), help="a folder per seed is made there")
    again = commands.add_parser("judge", help="analyze kept recordings again and judge")
    again.add_argument("folder", type=Path)
    again.add_argument("--as-analyzed", action="store_true", help="keep the reports that are there")
    again.add_argument("--only", type=int, nargs="+", metavar="NUMBER")
    for command in (running, again):
        command.add_argument("--jobs", type=int, default=1, help="scripts at once (run: more than 1 spoils the times)")
        command.add_argument("--long", action="store_true", help="print what was said where it is wrong")
    one = commands.add_parser("show", help="print one script")
    one.add_argument("seed", type=int)
    one.add_argument("number", type=int)
    options = parser.parse_args(arguments)
    if options.command == "show":
        spec = draw(options.seed, options.number)
        print(f"# {spec}\n{write(spec).text}", end="")
        return 0
    return _run(options) if options.command == "run" else _judge(options.folder, options)


def _run(options: argparse.Namespace) -> int:
    folder = options.out / str(options.seed)
    numbers, until = range(options.first, options.first + options.count), time.monotonic() + options.seconds

    def each(number: int) -> str:
        if time.monotonic() > until:
            return "not run: no time"
        spec = draw(options.seed, number, options.ranks, options.steps, options.device)
        print(f"{number:04} {spec.structure}: {spec.fault} in {spec.where}, {spec.who}", file=sys.stderr, flush=True)
        return run(spec, (folder / f"{number:04}").resolve(), options.rounds)

    if options.device == "cuda":  # jobs start side by side and have the device in turn
        os.environ["GPU_TURN"] = str(folder.resolve() / "turn.lock")
    folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(options.jobs) as pool:
        failed = [f"{number:04} {said}" for number, said in zip(numbers, pool.map(each, numbers), strict=True) if said]
    options.only, options.as_analyzed = None, False
    if options.unread:
        print(*failed, sep="\n", file=sys.stderr)
        return 1 if failed else 0
    return _judge(folder, options, failed)


def _judge(folder: Path, options: argparse.Namespace, failed: Sequence[str] = ()) -> int:
    ready = [one for one in sorted(folder.resolve().iterdir()) if (one / "twin" / "latest").exists()]
    if options.only:
        ready = [one for one in ready if int(one.name) in options.only]
    failed = [*failed]
    if not options.as_analyzed:
        with ThreadPoolExecutor(options.jobs) as pool:
            said = dict(zip(ready, pool.map(analyze, ready), strict=True))
        failed += [f"{one.name} {why}" for one, why in said.items() if why]
        ready = [one for one in ready if not said[one]]
    judged = [judge(one) for one in ready if all((one / f"{name}.json").exists() for name in ("script", "twin"))]
    print(*lines(judged, options.long), sep="\n")
    print(*failed, sep="\n", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
