"""Work that one report does twice: functions of job/, rules/ and replay/ called again with the same arguments.

    python benchmarks/repeated_work.py /tmp/fsdp8 [--most 0.02]

A function that walks what a rank recorded should run once for each rank; who asks again should get what is kept
(`ddprof.derived_once`). Calls are alike whose arguments are equal numbers and texts, or the same objects. Prints what
repeats cost, inclusive, as a share of the analysis after reading, and exits with 1 where one function's cost more than
`--most` of it. Shares under the tracer say little of small functions: it slows calls down and leaves numpy as it is.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import ddprof
from ddprof.analyzers.engine import Options, load_runs

ROOMS = tuple(str(Path(ddprof.__file__).parents[1] / "analyzers" / room) for room in ("job", "rules", "replay"))
PLAIN = (int, float, str, bytes, bool, type(None))
LONG_S = 0.001  # a shorter call walks no events
Key = tuple[CodeType, tuple[Any, ...]]


class Watch:
    """A profile function that adds up the calls of the rooms by function and arguments."""

    def __init__(self) -> None:
        self.costs_s: dict[Key, list[float]] = defaultdict(list)
        self._open: list[tuple[FrameType, Key, float]] = []
        self._alive: list[Any] = []  # so that no number of an object is given away again

    def __call__(self, frame: FrameType, event: str, _arg: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(ROOMS) and not code.co_name.startswith("<"):
            given = [frame.f_locals[name] for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]]
            self._alive.append(given)
            key = code, tuple(value if isinstance(value, PLAIN) else id(value) for value in given)
            self._open.append((frame, key, time.process_time()))
        elif event == "return" and self._open and self._open[-1][0] is frame:
            _, key, begun = self._open.pop()
            self.costs_s[key].append(time.process_time() - begun)


def repeated(watch: Watch) -> dict[CodeType, tuple[int, float]]:
    """Repeated calls of each function and their cost, s; the dearest first."""
    found: dict[CodeType, tuple[int, float]] = {}
    for (code, _), costs in watch.costs_s.items():
        again = [cost for cost in costs[1:] if cost >= LONG_S]
        if again:
            count, spent = found.get(code, (0, 0.0))
            found[code] = count + len(again), spent + sum(again)
    return dict(sorted(found.items(), key=lambda row: -row[1][1]))


def main() -> int:
    """Watch the report of every run below the paths."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+")
    parser.add_argument("--most", type=float, default=0.02)
    given = parser.parse_args()
    worst = 0.0
    for run in load_runs(given.paths, Options(cache=False)):
        watch, begun = Watch(), time.process_time()
        sys.setprofile(watch)
        try:
            _ = run.report
        finally:
            sys.setprofile(None)
        whole = time.process_time() - begun
        print(f"{run.label}: {whole:.2f} CPU s under the tracer")
        for code, (count, cost_s) in repeated(watch).items():
            worst = max(worst, cost_s / whole)
            print(f"  {cost_s / whole:6.1%} {count:5d} repeats of {code.co_qualname} ({Path(code.co_filename).name})")
    return int(worst > given.most)


if __name__ == "__main__":
    sys.exit(main())
