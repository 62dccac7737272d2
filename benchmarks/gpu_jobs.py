"""The jobs of gpu_check.py: a small model on one device, with one fault of ten or without it, by one process or two.

    python benchmarks/gpu_jobs.py NAME [NAME ...] --steps N --times FILE [--without | --both]

NAME: a capture (ddp, fsdp2, autocast, compiled, graphs) or a fault; `--without`: its twin, that does not have it;
`--both`: the job and its twin, in turn, in one process. FILE gets the length of each step in ms by name ("NAME twin"
for a twin), by the device's own events where there is one.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import itertools
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset

ON_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if ON_GPU else "cpu")
WIDTH, BATCH, LAYERS = (2048, 256, 8) if ON_GPU else (256, 32, 4)
UNFUSED = (512, 64, 48) if ON_GPU else (32, 8, 8)  # many small parameters: their updates are launches, not bytes
FAULTS = (
    *("item_per_layer", "pageable_copies", "tiny_kernels", "unfused_optimizer", "fp32_products", "allocator_churn"),
    *("slow_loader", "late_loader", "python_between", "saves_every_third"),
)
CAPTURES = ("ddp", "fsdp2", "autocast", "compiled", "graphs")
PAUSE_S = 0.02  # to read a batch
COPIED = 32 if ON_GPU else 2  # batches as long as one is used of, so that copying takes as long as computing
PYTHON = 300_000 if ON_GPU else 60_000  # rounds of a loop: longer than the device has work for


class Batches(Dataset[torch.Tensor]):
    """Batches that lie ready, pinned or not; `pause_s` to read one."""

    def __init__(self, rows: int, width: int, pause_s: float, is_pinned: bool) -> None:
        ready = (torch.full((rows, width), float(at)) for at in range(4))
        self.ready = [one.pin_memory() if is_pinned else one for one in ready]
        self.pause_s = pause_s

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, at: int) -> torch.Tensor:
        if self.pause_s:
            time.sleep(self.pause_s)
        return self.ready[at % len(self.ready)]


class Block(nn.Module):
    """A layer; `reads`: it reads a number of its output each time; `tiny`: many operators in place of one."""

    def __init__(self, width: int, reads: bool, tiny: bool) -> None:
        super().__init__()
        self.inner, self.reads, self.tiny = nn.Linear(width, width), reads, tiny

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.inner(x)
        if self.reads:
            self.last = x.mean().item()
        if self.tiny:
            for _ in range(200):
                x = x + 0.001
            return x
        return torch.relu(x)


def shape_of(name: str) -> tuple[int, int, int]:
    """Width, rows of a batch, and layers of a job."""
    return UNFUSED if name == "unfused_optimizer" else (WIDTH, BATCH, LAYERS)


def model_of(name: str, is_twin: bool) -> Any:
    """The model, wrapped as the job is named."""
    torch.manual_seed(0)
    width, _, layers = shape_of(name)
    reads, tiny = (name == fault and not is_twin for fault in ("item_per_layer", "tiny_kernels"))
    model: Any = nn.Sequential(*(Block(width, reads, tiny) for _ in range(layers))).to(DEVICE)
    if name == "compiled":
        model = torch.compile(model)
    if name == "fsdp2":
        from torch.distributed.fsdp import fully_shard

        for block in model:
            fully_shard(block)
        return fully_shard(model)
    # A graph of one callable holds no reductions that hooks of a wrapper start.
    return nn.parallel.DistributedDataParallel(model) if dist.is_initialized() and name != "graphs" else model


def batches(name: str, is_twin: bool) -> Iterator[torch.Tensor]:
    """Batches on the device."""
    width, rows, _ = shape_of(name)
    is_last = int(os.environ.get("RANK", "0")) == int(os.environ.get("WORLD_SIZE", "1")) - 1
    pauses = not is_twin and (name == "slow_loader" or (name == "late_loader" and is_last))
    pinned = ON_GPU and (is_twin or name != "pageable_copies")
    length = rows * COPIED if name == "pageable_copies" else rows
    for batch in DataLoader(Batches(length, width, PAUSE_S if pauses else 0.0, pinned), batch_size=None):
        yield batch.to(DEVICE, non_blocking=pinned)[:rows]


def step_of(name: str, model: Any, is_twin: bool) -> Callable[[torch.Tensor, int], None]:
    """One step of a job."""
    fault = "" if is_twin else name
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=fault != "unfused_optimizer")
    cast = name == "autocast"

    def step(batch: torch.Tensor, number: int) -> None:
        optimizer.zero_grad()
        with torch.autocast(DEVICE.type, torch.bfloat16) if cast else contextlib.nullcontext():
            loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        if fault == "allocator_churn" and ON_GPU:
            torch.cuda.empty_cache()
        if fault == "python_between":
            _ = sum(value * value for value in range(PYTHON))
        if fault == "saves_every_third" and number % 3 == 0:
            torch.save(model.state_dict(), Path(os.environ.get("TMPDIR", "/tmp")) / f"gpu_check.{os.getpid()}.pt")

    return step


def graphed(model: Any) -> Callable[[torch.Tensor, int], None]:
    """A step whose passes are one CUDA graph."""
    width, rows, _ = shape_of("graphs")
    sample = torch.zeros(rows, width, device=DEVICE)
    return step_of("graphs", torch.cuda.make_graphed_callables(model, (sample,)), False)


def timed(step: Callable[[torch.Tensor, int], None], given: Iterator[torch.Tensor], steps: int) -> list[float]:
    """The length of each step, ms: from event to event of the device, else by the host's clock."""
    if not ON_GPU:
        marks = [time.perf_counter()]
        for number in range(steps):
            step(next(given), number)
            marks.append(time.perf_counter())
        return [1e3 * (after - before) for before, after in itertools.pairwise(marks)]
    events = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
    events[0].record()
    for number in range(steps):
        step(next(given), number)
        events[number + 1].record()
    torch.cuda.synchronize()
    return [before.elapsed_time(after) for before, after in itertools.pairwise(events)]


def trained(name: str, steps: int, is_twin: bool) -> list[float]:
    """The length of each step of one job, ms."""
    torch.backends.cuda.matmul.allow_tf32 = is_twin or name != "fp32_products"
    model = model_of(name, is_twin)
    step = graphed(model) if name == "graphs" else step_of(name, model, is_twin)
    return timed(step, batches(name, is_twin), steps)


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+", choices=(*CAPTURES, *FAULTS))
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--times", type=Path, required=True)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--both", action="store_true")
    options = parser.parse_args()
    if "RANK" in os.environ:
        backend = "nccl" if ON_GPU and os.environ["WORLD_SIZE"] == "1" else "gloo"
        dist.init_process_group(backend)
    turn = open(os.environ["GPU_TURN"], "w") if "GPU_TURN" in os.environ else None  # noqa: SIM115, held to the end
    if turn and os.environ.get("RANK", "0") == "0":
        fcntl.flock(turn, fcntl.LOCK_EX)
    if dist.is_initialized():
        dist.barrier()
    times: dict[str, list[float]] = {}
    for name in options.names:
        for is_twin in (False, True) if options.both else (options.without,):
            times[f"{name} twin" if is_twin else name] = trained(name, options.steps, is_twin)
    if os.environ.get("RANK", "0") == "0":
        options.times.write_text(json.dumps(times))
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
