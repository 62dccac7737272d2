"""The jobs of gpu_check.py: a small model on one device, with one fault of ten or without it, by one process or two.

    python benchmarks/gpu_jobs.py NAME --steps N --times FILE [--without]

NAME: a capture (ddp, fsdp2, autocast, compiled, graphs) or a fault; `--without`: its twin, that does not have it. FILE
gets the length of each step in ms, by the device's own events where there is one.
"""

from __future__ import annotations

import argparse
import contextlib
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
FAULTS = (
    *("item_per_layer", "pageable_copies", "tiny_kernels", "unfused_optimizer", "fp32_products", "allocator_churn"),
    *("slow_loader", "late_loader", "python_between", "saves_every_third"),
)
CAPTURES = ("ddp", "fsdp2", "autocast", "compiled", "graphs")


class Samples(Dataset[torch.Tensor]):
    """Random rows; `pause_s` to read one."""

    def __init__(self, pause_s: float) -> None:
        self.pause_s = pause_s

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, at: int) -> torch.Tensor:
        if self.pause_s:
            time.sleep(self.pause_s)
        return torch.full((WIDTH,), float(at % 7))


class Block(nn.Module):
    """A layer; `reads`: it reads a number of its output each time; `tiny`: many operators in place of one."""

    def __init__(self, reads: bool, tiny: bool) -> None:
        super().__init__()
        self.inner, self.reads, self.tiny = nn.Linear(WIDTH, WIDTH), reads, tiny

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.inner(x)
        if self.reads:
            self.last = x.mean().item()
        if self.tiny:
            for _ in range(200):
                x = x + 0.001
            return x
        return torch.relu(x)


def model_of(name: str) -> Any:
    """The model, wrapped as the job is named."""
    torch.manual_seed(0)
    blocks = [Block(name == "item_per_layer", name == "tiny_kernels") for _ in range(LAYERS)]
    model: Any = nn.Sequential(*blocks).to(DEVICE)
    if name == "compiled":
        model = torch.compile(model)
    if name == "fsdp2":
        from torch.distributed.fsdp import fully_shard

        for block in model:
            fully_shard(block)
        return fully_shard(model)
    # A graph of one callable holds no reductions that hooks of a wrapper start.
    return nn.parallel.DistributedDataParallel(model) if dist.is_initialized() and name != "graphs" else model


def batches(name: str) -> Iterator[torch.Tensor]:
    """Batches on the device."""
    is_late = name == "late_loader" and int(os.environ.get("RANK", "0")) == int(os.environ.get("WORLD_SIZE", "1")) - 1
    pause_s = 0.002 if name == "slow_loader" or is_late else 0.0
    pinned = ON_GPU and name != "pageable_copies"
    for batch in DataLoader(Samples(pause_s), batch_size=BATCH if not pause_s else 16, pin_memory=pinned):
        whole = batch if len(batch) == BATCH else batch.repeat(BATCH // len(batch), 1)
        yield whole.to(DEVICE, non_blocking=pinned)


def step_of(name: str, model: Any) -> Callable[[torch.Tensor, int], None]:
    """One step of a job."""
    fused = name != "unfused_optimizer"
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=fused)
    cast = name == "autocast"

    def step(batch: torch.Tensor, number: int) -> None:
        optimizer.zero_grad()
        with torch.autocast(DEVICE.type, torch.bfloat16) if cast else contextlib.nullcontext():
            loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        if name == "allocator_churn" and ON_GPU:
            torch.cuda.empty_cache()
        if name == "python_between":
            _ = sum(value * value for value in range(60_000))
        if name == "saves_every_third" and number % 3 == 0:
            torch.save(model.state_dict(), Path(os.environ.get("TMPDIR", "/tmp")) / f"gpu_check.{os.getpid()}.pt")

    return step


def graphed(model: Any) -> Callable[[torch.Tensor, int], None]:
    """A step whose passes are one CUDA graph."""
    sample = torch.zeros(BATCH, WIDTH, device=DEVICE)
    model = torch.cuda.make_graphed_callables(model, (sample,))
    return step_of("graphs", model)


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


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=(*CAPTURES, *FAULTS))
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--times", type=Path, required=True)
    parser.add_argument("--without", action="store_true")
    options = parser.parse_args()
    name = "plain" if options.without else options.name
    torch.backends.cuda.matmul.allow_tf32 = name != "fp32_products"
    if "RANK" in os.environ:
        backend = "nccl" if ON_GPU and os.environ["WORLD_SIZE"] == "1" else "gloo"
        dist.init_process_group(backend)
    model = model_of(name)
    step = graphed(model) if name == "graphs" else step_of(name, model)
    times = timed(step, batches(name), options.steps)
    if os.environ.get("RANK", "0") == "0":
        options.times.write_text(json.dumps(times))
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
