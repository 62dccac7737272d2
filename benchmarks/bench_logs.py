"""Speed at which text logs of training jobs are read: made logs of four programs, MB of text per CPU second.

    python benchmarks/bench_logs.py [--lines 40000] [--runs 3]

Prints a row for each program: reading alone, and with what is found in it. The least of the runs counts.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

from ddprof.readers.source import Source
from ddprof.slices.training_logs.findings.explain import explain_tables
from ddprof.slices.training_logs.reading.read import read_training_log

START = datetime(2025, 6, 16, 22, 31, 4)
Draw = Callable[[float, float], float]
PROGRAMS: dict[str, Callable[[int, Draw], str]] = {
    "nanoGPT": lambda n, at: f"iter {n}: loss {at(3, 0.2):.4f}, time {at(250, 8):.2f}ms, mfu {at(38, 0.2):.2f}%",
    "Megatron": lambda n, at: (
        f" [{_clock(5 * n)}] iteration {n:8d}/  90000 | consumed samples: {n * 128:12d} | elapsed time per iteration "
        f"(ms): {at(5400, 60):.1f} | throughput per GPU (TFLOP/s/GPU): {at(240, 2):.1f} | learning rate: 1.0E-04 | "
        f"global batch size:   128 | lm loss: {at(3, 0.2):.6E} | grad norm: {at(1, 0.1):.3f} |"
    ),
    "torchtitan": lambda n, at: (
        f"[rank0]:[titan] {_clock(1.4 * n)} - root - INFO - step: {n:2d}  loss: {at(3, 0.2):8.4f}  "
        f"memory: 45.53GiB(57.5%)  tps: {int(at(5593, 40)):,}  tflops: {at(323, 2):.2f}  mfu: {at(32, 0.2):.2f}%"
    ),
    "detectron2": lambda n, at: (
        f"[{_clock(8 * n, '%m/%d %H:%M:%S')} d2.utils.events]:  eta: 2:10:59  iter: {20 * n - 1}  total_loss: "
        f"{at(1, 0.1):.4f}  loss_cls: {at(0.4, 0.05):.4f}    time: {at(0.4, 0.005):.4f}  "
        f"last_time: {at(0.4, 0.01):.4f}  data_time: {at(0.009, 0.001):.4f}  last_data_time: {at(0.009, 0.002):.4f}   "
        "lr: 0.02  max_mem: 3456M"
    ),
}


def _clock(second: float, form: str = "%Y-%m-%d %H:%M:%S,000") -> str:
    return (START + timedelta(seconds=int(second))).strftime(form)


def main() -> None:
    """Make each log, and read it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=40_000)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for program, line in PROGRAMS.items():
            path = Path(folder, "train.log")
            draw = random.Random(1).gauss
            path.write_text("".join(f"{line(number, draw)}\n" for number in range(1, options.lines + 1)))
            costs_s = []
            for _ in range(options.runs):
                started = time.process_time()
                log = read_training_log(Source(str(path), "training_log"))
                read = time.process_time()
                explain_tables(log)
                costs_s.append((read - started, time.process_time() - started))
            rates = (path.stat().st_size / 1e6 / min(column) for column in zip(*costs_s, strict=True))
            print("{:12} reading {:6.1f} MB/s, with findings {:6.1f}".format(program, *rates))


if __name__ == "__main__":
    main()
