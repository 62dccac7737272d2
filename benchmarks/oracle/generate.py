"""Write a corpus: `python benchmarks/oracle/generate.py OUT --count 200 --seed 1000 [--kinds KIND ...]`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

if __package__ in (None, ""):  # run as a script: make the repository importable
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.oracle.draws import generator
from benchmarks.oracle.kinds import EVERY_KIND, KNOWN_KINDS, WITH_PAUSES, NoScenarioError, scenario
from benchmarks.oracle.mess.catalogue import MESSES
from benchmarks.oracle.messy import messy_scenario
from benchmarks.oracle.simulate import simulate
from benchmarks.oracle.together import FOLDERS, together, write_together
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
    parser.add_argument("--messy", action="store_true", help="recordings with one to three messes, of few ranks")
    parser.add_argument("--messes", nargs="+", metavar="MESS", help="with --messy: only these (default: all)")
    parser.add_argument("--clean-share", type=float, default=0.4, help="with --messy: share of healthy runs")
    parser.add_argument("--list-messes", action="store_true", help="print the kinds of mess and stop")
    parser.add_argument("--list", action="store_true", help="print the kinds and stop")
    options = parser.parse_args(arguments)
    if options.list:
        print("\n".join(KNOWN_KINDS))
        return 0
    if options.list_messes:
        known = {kind.name: kind.what for kind in MESSES.values()} | FOLDERS
        print("\n".join(f"{name:<14}{what}" for name, what in known.items()))
        return 0
    if options.out is None:
        parser.error("OUT is required unless --list is given")
    unknown = [kind for kind in options.kinds or () if kind not in KNOWN_KINDS]
    if unknown:
        parser.error(f"unknown kind: {', '.join(unknown)} (see --list)")
    unknown = [mess for mess in options.messes or () if mess not in {**MESSES, **FOLDERS}]
    if unknown:
        parser.error(f"unknown mess: {', '.join(unknown)} (see --list-messes)")
    kinds = options.kinds or [kind for kind in EVERY_KIND if not (options.run_ahead and kind in WITH_PAUSES)]
    skipped = 0
    for index in range(options.count):
        began, kind, seed = time.perf_counter(), kinds[index % len(kinds)], options.seed + index
        try:
            if options.messy and (folder := folder_mess(seed, options.messes or (), options.kinds or ())):
                report(seed, folder, write_together(together(seed, folder), options.out / f"{seed}_{folder}"), began)
                continue
            if options.messy:
                found = messy_scenario(seed, options.clean_share, options.messes or (), options.kinds or ())
                kind = "+".join((found.kind, *(mess.name for mess in found.mess)))
            else:
                found = scenario(seed, kind, options.run_ahead)
        except NoScenarioError as error:
            print(f"{seed} {kind} skipped: {error}", file=sys.stderr)
            skipped += 1
            continue
        result = write(simulate(found), options.out / f"{seed}_{kind}")
        report(seed, kind, result, began)
    return 1 if skipped else 0


def folder_mess(seed: int, messes: Sequence[str], kinds: Sequence[str]) -> str:
    """The mess of a folder that a seed gets: unrelated runs, as often as any other mess; "" for one run."""
    names = [name for name in FOLDERS if name in messes or not (messes or kinds)]
    others = [name for name in messes if name not in FOLDERS] or ([] if messes else list(MESSES))
    draw = generator(seed, "folder")
    if draw.uniform() * (len(names) + len(others)) >= len(names):
        return ""
    return names[int(draw.integers(len(names)))]


def report(seed: int, kind: str, label: dict[str, Any], began: float) -> None:
    """One line on standard error."""
    share = label["recoverable_us"] / label["step_us"]
    print(f"{seed} {kind} {label['parallelism']} {label['world_size']} ranks {share:.1%} {label['events']} events "
          f"{time.perf_counter() - began:.1f} s", file=sys.stderr)  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
