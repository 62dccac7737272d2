"""Cost of a stack sample, and whether samples fall where the time goes.

    python benchmarks/stack_sampler.py [--seconds 6] [--rounds 3] [--output benchmarks/results/stack_sampler.json]

A loop of five parts (Python alone, many short calls that let go of the GIL, one call that holds it, one long
call that does not, a sleep) is sampled every 5 ms by each collector, in a process of its own. Compared are the
shares of the samples with those of the time, and what samples cost: time of the sampled thread, and CPU time of
the sampling one. A third part reads what the sampler says of itself over a longer run at its own rate. Costs of
the sampled thread grow with the load of the machine: where all cores are taken it waits until the sampling
thread has run.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

REPO = Path(__file__).resolve().parent.parent
PERIOD_NS = 5_000_000
KINDS = {"native": "1", "thread": "0"}  # DDPROF_NATIVE
BLOCK, BLOCKS = bytes(3_000_000), [bytes(3_000) for _ in range(400)]


def in_python() -> int:
    total = 0
    for number in range(40_000):
        total += number % 7
    return total


def short_calls() -> None:
    for block in BLOCKS:
        hashlib.sha256(block)  # lets go of the GIL above 2 KiB


def holds_gil() -> list[int]:
    return sorted([*range(30_000)] * 3, reverse=True)


def without_gil() -> bytes:
    return hashlib.sha256(BLOCK).digest()


def sleeps() -> None:
    time.sleep(0.003)


PARTS: tuple[Callable[[], object], ...] = (in_python, short_calls, holds_gil, without_gil, sleeps)


class Standing:
    """Phase timers of a process without phases."""

    thread, phase, index = 0, 5, 9


def measure(seconds: float) -> dict[str, Any]:
    """One run, in this process."""
    from ddprof.capture.stacks.collector import make_collector

    collector = make_collector(Standing())
    collector.thread, collector.is_main = threading.get_ident(), True
    collector.period_ns = PERIOD_NS
    cpu_ns: list[int] = []

    def collect() -> None:
        began_ns = time.thread_time_ns()
        collector.collect(3600 * 10**9)
        cpu_ns.append(time.thread_time_ns() - began_ns)

    thread = threading.Thread(target=collect, daemon=True)
    thread.start()
    spent_s: Counter[str] = Counter()
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        for part in PARTS:
            began_s = time.perf_counter()
            part()
            spent_s[part.__name__] += time.perf_counter() - began_s  # type: ignore[assignment]
    collector.wake()
    thread.join()
    samples, names, seen_ns = collector.take(), {part.__name__ for part in PARTS}, Counter[str]()
    for sample in samples:
        seen_ns[next((code.co_name for code in sample[5][::2] if code.co_name in names), "elsewhere")] += sample[1]
    return {
        "samples": len(samples),
        "held_us": round(collector.spent_ns / 1e3 / max(len(samples), 1), 1),
        "cpu_us": round(cpu_ns[0] / 1e3 / max(len(samples), 1), 1),
        "time_percent": {name: round(100 * spent_s[name] / sum(spent_s.values()), 1) for name in sorted(names)},
        "seen_percent": {
            name: round(100 * seen_ns[name] / seen_ns.total(), 1) for name in sorted({*names, "elsewhere"})
        },
    }


def measure_sampler(seconds: float) -> dict[str, Any] | None:
    """The sampler at its own rate, half of the time with a window open."""
    from ddprof.capture.stacks.sampler import StackSampler

    with tempfile.TemporaryDirectory() as folder:
        sampler = StackSampler(Standing(), lambda: True, print)
        sampler.start(Path(folder, "a.stacks.jsonl"), {})
        for is_window in (False, True):
            sampler.window(is_window)
            until = time.perf_counter() + seconds
            while time.perf_counter() < until:
                for part in PARTS:
                    part()
        sampler.stop("exit")
        return sampler.described()


def in_child(what: str, kind: str, seconds: float) -> dict[str, Any]:
    """A measurement in a process of its own."""
    command = [sys.executable, __file__, "--what", what, "--seconds", str(seconds)]
    environment = {**os.environ, "DDPROF_NATIVE": KINDS[kind], "PYTHONPATH": str(REPO)}
    printed = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
    return {"collector": kind, "load_average_1m": round(os.getloadavg()[0], 1), **json.loads(printed)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--what", choices=("collector", "sampler"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.what:
        print(json.dumps(measure(options.seconds) if options.what == "collector" else measure_sampler(options.seconds)))
        return
    runs = [in_child("collector", kind, options.seconds) for _ in range(options.rounds) for kind in KINDS]
    samplers = [in_child("sampler", kind, 2 * options.seconds) for kind in KINDS]
    costs = {
        f"{kind}_{cost}": round(median(run[cost] for run in runs if run["collector"] == kind), 1)
        for kind in KINDS
        for cost in ("held_us", "cpu_us")
    }
    machine = {"date": f"{datetime.date.today()}", "cores": os.cpu_count(), "python": platform.python_version()}
    text = json.dumps({**machine, **costs, "runs": runs, "samplers": samplers}, indent=1)
    print(text)
    if options.output:
        options.output.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
