"""Cost of capture for a job: two gloo ranks on CPU, hooks installed and removed in turn within the same processes.

    python benchmarks/capture_overhead.py [--cycles 600] [--output benchmarks/results/capture_overhead.json]

Short blocks of steps alternate between "bare" (every patch taken out) and "hooks" (monitor mode: phase timers, ring, no
window), in random order within each cycle, so that drift of the machine hits both alike. CPU time of the training
thread is compared, in the fastest step of each block: all else measures the neighbours. The first steps of a block are
not counted: patching a class costs the interpreter its caches, bare or not. Every few cycles a trace window
is measured the same way, over a block of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

REPO = Path(__file__).resolve().parent.parent
SETTLING_STEPS = 3  # of each block, not counted
BLOCK_STEPS = 5
WINDOW_STEPS = 5
SIZES = ("cycles", "window_every", "width", "batch")


def job(options: argparse.Namespace) -> None:
    """One rank."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, TensorDataset

    from ddprof.capture.bootstrap import start
    from ddprof.capture.files.config import CaptureConfig
    from ddprof.capture.instruments.optimizer import OptimizerSteps

    torch.set_num_threads(1)
    session = start(CaptureConfig(options.folder, mode="monitor", stacks=options.stacks).as_path(), torch)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    layers = [torch.nn.Linear(options.width, options.width) for _ in range(4)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers, torch.nn.ReLU()))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = TensorDataset(torch.randn(64 * options.batch, options.width))
    loader = iter(())  # type: ignore[var-annotated]

    def step() -> None:
        nonlocal loader
        try:
            (x,) = next(loader)
        except StopIteration:
            loader = iter(DataLoader(data, batch_size=options.batch))
            (x,) = next(loader)
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    def hooked(on: bool) -> None:
        """Put all patches in place, or what they replaced: as many classes change, and lose their caches, either way.
        Nothing is learnt anew."""
        for instrumentor in session.instrumentors:
            if isinstance(instrumentor, OptimizerSteps):  # registered with torch, not patched in
                instrumentor.install(torch) if on else instrumentor.uninstall()
            for patch in instrumentor.patches._patches:
                patch.install() if on else patch.uninstall()

    def cpu_of(steps: int) -> tuple[float, float]:
        """CPU seconds of the fastest step, which met the fewest neighbours, and the median of the wall seconds."""
        cpus, step_walls = [], []
        for _ in range(steps):
            cpu, wall = time.thread_time(), time.perf_counter()
            step()
            cpus.append(time.thread_time() - cpu)
            step_walls.append(time.perf_counter() - wall)
        return min(cpus), median(step_walls)

    for _ in range(20):
        step()
    chooser = random.Random(1)  # the same order on every rank
    pairs: list[dict[str, float]] = []
    walls: list[float] = []
    for cycle in range(options.cycles):
        pair: dict[str, float] = {}
        modes = ["bare", "hooks"] if cycle % options.window_every else ["bare", "hooks", "window"]
        for mode in chooser.sample(modes, len(modes)):
            hooked(mode != "bare")
            for _ in range(SETTLING_STEPS):
                step()
            if mode == "window":
                session.plan.request(0, WINDOW_STEPS + 1, "benchmark")
                session.tracker.calm_until = 0
                step()  # opens the window
                pair[mode], _ = cpu_of(WINDOW_STEPS)
                step()  # closes and exports
                session.window.join(10)
                for trace in Path(options.folder).glob("*.pt.trace.json*"):
                    trace.unlink(missing_ok=True)
            else:
                pair[mode], wall = cpu_of(BLOCK_STEPS)
                walls.append(wall)
        pairs.append(pair)
    if dist.get_rank() == 0:
        result = {"pairs": pairs, "step_ms": 1e3 * median(walls), "direct_us": direct_us(session, optimizer)}
        result["stacks"] = session.stacks.described()
        Path(options.folder, "result.json").write_text(json.dumps(result))
    dist.destroy_process_group()


def direct_us(session: Any, optimizer: Any) -> float:
    """CPU time of everything monitor mode does in one step, called 20,000 times in a row without the training
    (microseconds).
    """
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    from ddprof.capture.files.step import BACKWARD, DATA, FORWARD, OPTIMIZER
    from ddprof.capture.instruments.dataloader import DataLoading

    loader = DataLoader(TensorDataset(torch.randn(8, 8)), batch_size=8)
    batches = iter(loader)
    batch = next(batches)
    loading = next(one for one in session.instrumentors if isinstance(one, DataLoading))
    saw_batch = session.guard.wrap(loading.saw_batch)
    rounds = 20_000
    started = time.thread_time()
    for _ in range(rounds):
        for phase in (DATA, FORWARD, BACKWARD, OPTIMIZER):
            session.end(phase, session.begin(phase))
        saw_batch(batches, batch)
        session.optimizer_stepped(optimizer)
    return 1e6 * (time.thread_time() - started) / rounds


def summarize(pairs: list[dict[str, float]], mode: str) -> dict[str, float]:
    """Median relative difference to bare within a cycle, with a 90 % bootstrap interval; percent."""
    pairs = [pair for pair in pairs if mode in pair]
    ratios = [100 * (pair[mode] / pair["bare"] - 1) for pair in pairs]
    chooser = random.Random(0)
    medians = sorted(median(chooser.choices(ratios, k=len(ratios))) for _ in range(2000))
    differences = [1e6 * (pair[mode] - pair["bare"]) for pair in pairs]
    return {
        "percent": round(median(ratios), 3),
        "low_percent": round(medians[100], 3),
        "high_percent": round(medians[1900], 3),
        "us_per_step": round(median(differences), 1),
        "cycles": len(pairs),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cycles", type=int, default=600, help="of bare and hooks in turn")
    parser.add_argument("--window-every", type=int, default=12, help="every so many cycles have a trace window too")
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument(
        "--stacks", action="store_true", help="with the sampler of stacks, which runs beside bare steps too"
    )
    parser.add_argument("--folder", default="")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    if "RANK" in os.environ:
        job(options)
        return
    with tempfile.TemporaryDirectory() as folder:
        launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", __file__, "--folder", folder]
        sizes = [f"--{name.replace('_', '-')}={getattr(options, name)}" for name in SIZES]
        sizes += ["--stacks"] if options.stacks else []
        environment = {**os.environ, "PYTHONPATH": str(REPO), "OMP_NUM_THREADS": "1"}
        subprocess.run([*launcher, *sizes], env=environment, check=True)
        raw: dict[str, Any] = json.loads(Path(folder, "result.json").read_text())
    result = {
        "step_ms": round(raw["step_ms"], 2),
        "cpu_ms_bare": round(1e3 * median(pair["bare"] for pair in raw["pairs"]), 3),
        "load_average_1m": round(os.getloadavg()[0], 1),
        "monitor_direct_us_per_step": round(raw["direct_us"], 1),
        "monitor_direct_percent_of_20_ms": round(raw["direct_us"] / 20e3 * 100, 3),
        "monitor": summarize(raw["pairs"], "hooks"),
        "trace_window": summarize(raw["pairs"], "window"),
        "stacks": raw["stacks"],
    }
    text = json.dumps(result, indent=1)
    print(text)
    if options.output:
        options.output.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
