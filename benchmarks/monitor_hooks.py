"""Cost of monitor mode's hooks in a training loop, where caches are cold when they are called.

    python benchmarks/monitor_hooks.py [--rounds 3] [--steps 800] [--output benchmarks/results/monitor_hooks.json]

One gloo rank with DDP and a small model. Warm: nothing but the phases of its steps. Cold: between the phases it streams
through 16 MiB, as the kernels of a real step do, which leaves nothing of the hooks in the caches.

The functions that capture replaces are timed from outside and from inside; what lies between is ddprof, wrappers
included, and the timing itself. That is measured the same way without ddprof ("nothing") and taken off. Each round runs
nothing, the timers in C ("native") and those in Python, one after the other. Beside them stands `own_us`, what the
sidecar of the same run says.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
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
    """Have what is registered to be called at optimizer steps measured."""
    source: Any = sys.modules["torch.optim.optimizer"]
    for name in ("register_optimizer_step_pre_hook", "register_optimizer_step_post_hook"):
        setattr(source, name, _registering(getattr(source, name), spent_ns))


def _registering(register: Callable[..., Any], spent_ns: list[int]) -> Callable[..., Any]:
    return lambda hook: register(timed(hook, spent_ns))


def register_nothing() -> None:
    """Hooks that do nothing at optimizer steps, in place of ddprof's."""
    source: Any = sys.modules["torch.optim.optimizer"]
    source.register_optimizer_step_pre_hook(_nothing)
    source.register_optimizer_step_post_hook(_nothing)


def _nothing(*_: Any) -> None:
    return None


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


def measure(timers: str, stream_mib: int, steps: int) -> None:
    """One run, in a process of its own, as JSON on stdout. `timers`: a key of `RUNS`."""
    import torch

    from ddprof.capture.bootstrap import start
    from ddprof.capture.files.config import CaptureConfig

    torch.set_num_threads(1)
    spent_ns = [0]
    measure_places(torch, spent_ns, -1)
    measure_optimizer_hooks(spent_ns)
    with tempfile.TemporaryDirectory() as folder:
        session = None
        if timers == "nothing":
            register_nothing()
        else:
            session = start(CaptureConfig(folder, mode="monitor").as_path(), torch)
        measure_places(torch, spent_ns, 1)
        os.environ.update(RANK="0", WORLD_SIZE="1")
        torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
        found = run(trainer(torch, stream_mib), spent_ns, steps)
        if session is not None:
            found["own_us"] = round(session.own_cost.per_step_ns() / 1e3, 1)
            found["stacks"] = session.stacks.described()
        print(json.dumps(found))
        torch.distributed.destroy_process_group()
        if session is not None:
            session.finish("exit")  # before its folder goes


RUNS = {"nothing": "1", "native": "1", "python": "0"}  # timers: DDPROF_NATIVE
CACHES = {"warm": 0, "cold": 16}  # MiB streamed through between phases


def measured(timers: str, stream_mib: int, steps: int) -> dict[str, Any]:
    """`measure` in a child process."""
    command = [sys.executable, __file__, "--steps", str(steps), "--stream-mib", str(stream_mib), "--timers", timers]
    environment = {**os.environ, "DDPROF_NATIVE": RUNS[timers], "PYTHONPATH": str(REPO)}
    printed = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
    found: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return {"timers": timers, "stream_mib": stream_mib, **found, "load_average_1m": round(os.getloadavg()[0], 1)}


def summary(runs: list[dict[str, Any]]) -> dict[str, float]:
    """Medians over the rounds; microseconds per step, without what the timing costs."""
    found = {}
    for caches, stream_mib in CACHES.items():
        of = {t: [r for r in runs if (r["timers"], r["stream_mib"]) == (t, stream_mib)] for t in RUNS}
        timing_us = median(r["us_per_step"] for r in of["nothing"])
        for timers in ("native", "python"):
            found[f"{timers}_{caches}_us"] = round(median(r["us_per_step"] for r in of[timers]) - timing_us, 1)
            found[f"{timers}_{caches}_own_us"] = round(median(r["own_us"] for r in of[timers]), 1)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--stream-mib", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--timers", choices=RUNS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.timers:
        measure(options.timers, options.stream_mib, options.steps)
        return
    runs = [
        measured(timers, stream_mib, options.steps)
        for _ in range(options.rounds)
        for stream_mib in CACHES.values()
        for timers in RUNS
    ]
    machine = {"date": f"{datetime.date.today()}", "cores": os.cpu_count(), "python": platform.python_version()}
    text = json.dumps({**machine, "steps": options.steps, **summary(runs), "runs": runs}, indent=1)
    print(text)
    if options.output:
        options.output.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
