"""What the hooks of monitor mode take in a training loop, where caches are cold when they are called.

    python benchmarks/monitor_hooks.py [--whole] [--steps 1500] [--stream-mib 16] [--checkout OTHER]

One gloo rank with DDP and a small model; between the phases of a step it streams through `--stream-mib` of memory, as
the kernels of a real step do, which leaves nothing of the hooks in the caches. The time inside each guarded hook is
taken and summed per step. That is more than a user pays, since each hook holds two readings of the clock, and less,
since the wrappers around the user's calls are outside. `--whole` times the replaced functions instead, from outside and
from inside: what lies between is ddprof, wrappers included, and two readings of the clock per function. It is set
beside `own_us_per_step`, what a sidecar of that run would say. `--checkout` measures another version's `ddprof`.
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


def timed(function: Callable[..., Any], spent_ns: list[int], sign: int = 1) -> Callable[..., Any]:
    """`function`, with its time added to (`sign` 1) or taken from (-1) the last entry of `spent_ns`."""
    clock = time.perf_counter_ns

    def measured(*args: Any, **kwargs: Any) -> Any:
        started = clock()
        try:
            return function(*args, **kwargs)
        finally:
            spent_ns[-1] += sign * (clock() - started)

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


def trainer(torch: Any, stream_mib: int) -> Callable[[], None]:
    """One step of a small model under DDP."""
    net = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, WIDTH))
    model = torch.nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    stream, feed = torch.zeros(max(stream_mib << 18, 1)), batches(torch)

    def step() -> None:
        x = next(feed)
        stream.add_(1)
        optimizer.zero_grad()
        loss = model(x).square().mean()
        stream.add_(1)
        loss.backward()
        stream.add_(1)
        optimizer.step()
        stream.add_(1)

    return step


def measure_places(torch: Any, spent_ns: list[int], sign: int) -> None:
    """Have the functions that capture replaces measured, before it does (sign -1) and after (1)."""
    from torch.utils.data import dataloader
    from torch.utils.data._utils import fetch

    iterator, fetcher = dataloader._BaseDataLoaderIter, fetch._MapDatasetFetcher
    places = [(iterator, "__next__"), (iterator, "_next_index"), (fetcher, "fetch"), (torch.autograd, "backward")]
    for owner, name in [*places, (torch.nn.parallel.DistributedDataParallel, "__call__")]:
        setattr(owner, name, timed(getattr(owner, name), spent_ns, sign))


def measure_optimizer_hooks(spent_ns: list[int]) -> None:
    """Have what torch calls at optimizer steps measured."""
    from ddprof.capture.instruments.optimizer import OptimizerSteps

    for name in ("_before", "_after"):
        setattr(OptimizerSteps, name, timed(getattr(OptimizerSteps, name), spent_ns))


def run(step: Callable[[], None], spent_ns: list[int], steps: int) -> dict[str, Any]:
    """Medians over some steps."""
    walls_ns = []
    for number in range(WARM_STEPS + steps):
        if number >= WARM_STEPS:
            spent_ns.append(0)
        started = time.perf_counter_ns()
        step()
        walls_ns.append(time.perf_counter_ns() - started)
    steps_us = sorted(ns / 1e3 for ns in spent_ns[1:])
    return {
        "us_per_step": round(median(steps_us), 1),
        "quartiles_us": [round(steps_us[len(steps_us) * share // 4], 1) for share in (1, 3)],
        "step_ms": round(median(walls_ns[WARM_STEPS:]) / 1e6, 2),
    }


def own_us(session: Any) -> float | None:
    """The figure that ddprof gives for itself; None in versions before it was sampled."""
    cost = getattr(session, "own_cost", None)
    ns = None if cost is None else cost.per_step_ns()
    return None if ns is None else round(ns / 1e3, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--stream-mib", type=int, default=16, help="memory streamed through between phases; 0: none")
    parser.add_argument("--whole", action="store_true", help="with the wrappers around the user's calls")
    parser.add_argument("--checkout", type=Path, default=REPO)
    options = parser.parse_args()
    sys.path.insert(0, str(options.checkout.resolve()))
    import torch

    from ddprof.capture.bootstrap import start
    from ddprof.capture.config import CaptureConfig
    from ddprof.capture.guard import Guard

    torch.set_num_threads(1)
    spent_ns = [0]
    if options.whole:
        measure_places(torch, spent_ns, -1)
        measure_optimizer_hooks(spent_ns)
    else:
        measure_guard(Guard, spent_ns)
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "config.json")
        CaptureConfig(folder, str(options.checkout), "benchmark", mode="monitor").save(config)
        session = start(str(config))
        if options.whole:
            measure_places(torch, spent_ns, 1)
        os.environ.update(RANK="0", WORLD_SIZE="1")
        torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
        found = run(trainer(torch, options.stream_mib), spent_ns, options.steps)
        load = round(os.getloadavg()[0], 1)
        said = {"own_us_per_step": own_us(session)} if options.whole else {}
        print(json.dumps({**found, **said, "load_average_1m": load}))
        torch.distributed.destroy_process_group()
        session.finish("exit")  # before its folder goes


if __name__ == "__main__":
    main()
