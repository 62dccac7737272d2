"""What the hooks of monitor mode take in a training loop, where caches are cold when they are called.

    python benchmarks/monitor_hooks.py [--steps 1500] [--stream-mib 16] [--checkout OTHER]

One gloo rank with DDP and a small model; between the phases of a step it streams through `--stream-mib` of memory, as
the kernels of a real step do, which leaves nothing of the hooks in the caches. The time inside each guarded hook is
taken and summed per step. That is more than a user pays, since each hook holds two readings of the clock, and less,
since the wrappers around the user's calls are outside. `--checkout` measures another version's `ddprof`, run in turn.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

REPO = Path(__file__).resolve().parent.parent
WARM_STEPS = 100
BATCH, WIDTH = 8, 16


def timed(hook: Callable[..., Any], spent_ns: list[int]) -> Callable[..., Any]:
    """`hook`, with its time added to the last entry of `spent_ns`."""
    clock = time.perf_counter_ns

    def measured(*args: Any) -> Any:
        started = clock()
        try:
            return hook(*args)
        finally:
            spent_ns[-1] += clock() - started

    return measured


def measure_guard(guard: Any, spent_ns: list[int]) -> None:
    """Have every hook that a guard wraps measured."""
    for name in ("wrap", "wrap_hook"):
        original = getattr(guard, name, None)
        if original is not None:
            setattr(guard, name, _measuring(original, spent_ns))


def _measuring(original: Callable[..., Any], spent_ns: list[int]) -> Callable[..., Any]:
    return lambda guard, hook: timed(original(guard, hook), spent_ns)


def batches(torch: Any) -> Iterator[Any]:
    """Batches without end, from loaders without workers."""
    data = torch.utils.data.TensorDataset(torch.randn(BATCH * 4000, WIDTH))
    while True:
        for (x,) in torch.utils.data.DataLoader(data, batch_size=BATCH):
            yield x


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--stream-mib", type=int, default=16, help="memory streamed through between phases; 0: none")
    parser.add_argument("--checkout", type=Path, default=REPO)
    options = parser.parse_args()
    sys.path.insert(0, str(options.checkout.resolve()))
    import torch

    from ddprof.capture.bootstrap import start
    from ddprof.capture.config import CaptureConfig
    from ddprof.capture.guard import Guard

    torch.set_num_threads(1)
    spent_ns = [0]
    measure_guard(Guard, spent_ns)
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "config.json")
        CaptureConfig(folder, str(options.checkout), "benchmark", mode="monitor").save(config)
        start(str(config))
        os.environ.update(RANK="0", WORLD_SIZE="1")
        torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
        net = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, WIDTH))
        model = torch.nn.parallel.DistributedDataParallel(net)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        stream, feed = torch.zeros(max(options.stream_mib << 18, 1)), batches(torch)
        walls_ns = []
        for number in range(WARM_STEPS + options.steps):
            if number >= WARM_STEPS:
                spent_ns.append(0)
            started = time.perf_counter_ns()
            x = next(feed)
            stream.add_(1)
            optimizer.zero_grad()
            loss = model(x).square().mean()
            stream.add_(1)
            loss.backward()
            stream.add_(1)
            optimizer.step()
            stream.add_(1)
            walls_ns.append(time.perf_counter_ns() - started)
        steps_us = sorted(ns / 1e3 for ns in spent_ns[1:])
        print(
            json.dumps(
                {
                    "hooks_us_per_step": round(median(steps_us), 1),
                    "quartiles_us": [round(steps_us[len(steps_us) * share // 4], 1) for share in (1, 3)],
                    "step_ms": round(median(walls_ns[WARM_STEPS:]) / 1e6, 2),
                    "load_average_1m": round(os.getloadavg()[0], 1),
                }
            )
        )
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
