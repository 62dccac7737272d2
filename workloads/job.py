"""Start and end of a workload: process group, device, seed, and rank 0's last line."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist

from ddprof.workloads.arguments import Switches, switches
from ddprof.workloads.catalogue import Workload
from ddprof.workloads.stopwatch import Stopwatch

CROWDED_THREADS = 8  # of each rank, more than two of them have cores for


@dataclass(frozen=True)
class Place:
    """This process's rank, device, active fault, and the clock of its steps."""

    rank: int
    world_size: int
    device: torch.device
    switches: Switches
    watch: Stopwatch


Train = Callable[[argparse.Namespace, Place], list[float]]


def require(workload: Workload) -> None:
    """End with one line where a package is missing."""
    missing = [name for name in workload.packages if importlib.util.find_spec(name) is None]
    if missing:
        sys.exit(f"{workload.script}: needs {' and '.join(missing)}: pip install {' '.join(missing)}")


def run(workload: Workload, options: argparse.Namespace, train: Train) -> None:
    """Train on this rank; rank 0 reports. `train` returns the losses of the rank."""
    torch.set_num_threads(CROWDED_THREADS if options.fault == "threads" and not options.fix else options.threads)
    device = _device()
    backend = options.backend
    if backend == "auto":
        backend = "nccl" if device.type == "cuda" else "gloo"
    if not dist.is_initialized():
        dist.init_process_group(backend)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(options.seed)
    with open(options.laps if options.laps and rank == 0 else os.devnull, "w", encoding="ascii", buffering=1) as told:
        watch = Stopwatch(told=told if options.laps else None)
        place = Place(rank, world_size, device, switches(options, rank, world_size), watch)
        losses = train(options, place)
    if rank == 0:
        _report(workload, options, place, losses)
    dist.destroy_process_group()


def _report(workload: Workload, options: argparse.Namespace, place: Place, losses: list[float]) -> None:
    laps = place.watch.laps_ns
    mean_ms = sum(laps) / 1e6 / max(len(laps), 1)
    print(f"{len(losses)} steps, {mean_ms:.1f} ms per step, last loss {losses[-1]:.4f}")
    if options.losses:
        with open(options.losses, "w", encoding="ascii") as stream:
            stream.writelines(f"{loss.hex()}\n" for loss in losses)
    print(place.watch.line(workload.name, options.fault, options.fix, place.world_size), flush=True)


def _device() -> torch.device:
    if torch.cuda.is_available():
        index = int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count()
        torch.cuda.set_device(index)
        return torch.device("cuda", index)
    return torch.device("cpu")
