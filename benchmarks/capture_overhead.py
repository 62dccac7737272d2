"""What capture costs a job: two gloo ranks on CPU, hooks installed and removed in turn within the same processes.

    python benchmarks/capture_overhead.py [--blocks 40] [--output benchmarks/results/capture_overhead.json]

Blocks of steps alternate between "bare" (every instrumentor uninstalled) and "hooks" (monitor mode: phase timers,
ring, no window), in random order within each pair, so that drift of the machine hits both alike. CPU time of the
training thread is compared, because wall time on a shared machine measures the neighbours. Trace windows are measured
the same way, with a window over the whole block.
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
BLOCK_STEPS = 25
WINDOW_STEPS = 5


def job(options: argparse.Namespace) -> None:
    """One rank."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, TensorDataset

    from ddprof.capture.bootstrap import start
    from ddprof.capture.config import CaptureConfig

    torch.set_num_threads(1)
    config = Path(options.folder) / f"config.{os.environ['RANK']}.json"
    CaptureConfig(options.folder, str(REPO), "benchmark", mode="monitor").save(config)
    session = start(str(config))
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
        for instrumentor in session.instrumentors:
            if not on:
                instrumentor.uninstall()
            elif instrumentor.module == "torch":
                instrumentor.install(torch)

    def cpu_of(steps: int) -> tuple[float, float]:
        cpu, wall = time.thread_time(), time.perf_counter()
        for _ in range(steps):
            step()
        return (time.thread_time() - cpu) / steps, (time.perf_counter() - wall) / steps

    for _ in range(20):
        step()
    chooser = random.Random(1)  # the same order on every rank
    pairs: list[dict[str, float]] = []
    walls: list[float] = []
    for _ in range(options.blocks):
        pair: dict[str, float] = {}
        for mode in chooser.sample(["bare", "hooks", "window"], 3):
            hooked(mode != "bare")
            step()
            if mode == "window":
                session.plan.request(0, WINDOW_STEPS + 1)
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
        Path(options.folder, "result.json").write_text(json.dumps(result))
    dist.destroy_process_group()


def direct_us(session: Any, optimizer: Any) -> float:
    """CPU time of everything monitor mode does in one step, called 20,000 times in a row without the training
    (microseconds).
    """
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    from ddprof.capture.steps import BACKWARD, DATA, FORWARD, OPTIMIZER

    loader = DataLoader(TensorDataset(torch.randn(8, 8)), batch_size=8)
    batches = iter(loader)
    batch = next(batches)
    saw_batch = session.guard.wrap(session.loading.saw_batch)
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
    ratios = [100 * (pair[mode] / pair["bare"] - 1) for pair in pairs]
    chooser = random.Random(0)
    medians = sorted(median(chooser.choices(ratios, k=len(ratios))) for _ in range(2000))
    differences = [1e6 * (pair[mode] - pair["bare"]) for pair in pairs]
    return {
        "percent": round(median(ratios), 3),
        "low_percent": round(medians[100], 3),
        "high_percent": round(medians[1900], 3),
        "us_per_step": round(median(differences), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=40, help="cycles of bare, hooks, window")
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--folder", default="")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    if "RANK" in os.environ:
        job(options)
        return
    with tempfile.TemporaryDirectory() as folder:
        launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", __file__, "--folder", folder]
        sizes = [f"--{name}={getattr(options, name)}" for name in ("blocks", "width", "batch")]
        environment = {**os.environ, "PYTHONPATH": str(REPO), "OMP_NUM_THREADS": "1"}
        subprocess.run([*launcher, *sizes], env=environment, check=True)
        raw: dict[str, Any] = json.loads(Path(folder, "result.json").read_text())
    result = {
        "step_ms": round(raw["step_ms"], 2),
        "cpu_ms_bare": round(1e3 * median(pair["bare"] for pair in raw["pairs"]), 3),
        "cycles": len(raw["pairs"]),
        "load_average_1m": round(os.getloadavg()[0], 1),
        "monitor_direct_us_per_step": round(raw["direct_us"], 1),
        "monitor_direct_percent_of_20_ms": round(raw["direct_us"] / 20e3 * 100, 3),
        "monitor": summarize(raw["pairs"], "hooks"),
        "trace_window": summarize(raw["pairs"], "window"),
    }
    text = json.dumps(result, indent=1)
    print(text)
    if options.output:
        options.output.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
