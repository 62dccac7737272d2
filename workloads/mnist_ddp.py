"""A CNN on a generated MNIST-like set under DistributedDataParallel, with faults to switch on.

    ddprof run -- torchrun --nproc-per-node=2 workloads/mnist_ddp.py --fault slow-loader

What each fault must give (finding id, culprit ranks); F is --fault-rank, default the last rank:

    none              nothing above "info"
    slow-loader       input.starved, []          every rank's data set sleeps per batch
    loader-straggler  input.straggler, [F]       rank F's data set sleeps per batch
    slow-rank         straggler.compute, [F]     rank F's operators take longer (the same layers over more work)
    slow-host         straggler.host, [F]        plain Python time between the operators of rank F
    tiny-buckets      comm.latency_bound, []     bucket_cap_mb far below one parameter: a collective per parameter
    no-overlap        comm.no_overlap, []        one bucket larger than the model: communication starts after backward
    big-model         comm.bandwidth_bound, []   a layer so wide that its gradients take longer than the computation
    gc                host.gc, []                each rank collects garbage at a step of its own
    checkpoint        host.checkpoint, [0]       rank 0 saves the state synchronously every other step
    item              host.sync, []              `.item()` after every layer (only on a GPU does the host wait)
    imbalance         straggler.imbalance, []    batches of unequal size, another rank late at each step

tiny-buckets trains a deep stack of small layers and no-overlap a wider layer, or their fault would cost nothing; to
measure what the fault
costs, run `--fault none` with the same --depth or --hidden.

Deterministic: the data, the model and the order of samples depend on the seed alone.
"""

from __future__ import annotations

import argparse
import gc
import io
import itertools
import os
import time
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

FAULTS = (
    "none",
    "slow-loader",
    "loader-straggler",
    "slow-rank",
    "slow-host",
    "tiny-buckets",
    "no-overlap",
    "big-model",
    "gc",
    "checkpoint",
    "item",
    "imbalance",
)
CLASSES = 10
SIDE = 28
SMALL = 32  # width of a residual layer
EPOCH_STEPS = 64  # the set is this long; longer runs go through it again


class Digits(Dataset[tuple[Tensor, int]]):
    """Noisy prototypes of ten classes, held in memory. `sample_sleep_s` makes reading a sample slow."""

    def __init__(self, count: int, seed: int, sample_sleep_s: float = 0.0) -> None:
        generator = torch.Generator().manual_seed(seed)
        prototypes = torch.rand(CLASSES, 1, SIDE, SIDE, generator=generator)
        labels = torch.randint(CLASSES, (count,), generator=generator)
        noise = torch.randn(count, 1, SIDE, SIDE, generator=generator)
        self.images = (prototypes[labels] + 0.3 * noise).unbind()
        self.labels: list[int] = labels.tolist()
        self.sample_sleep_s = sample_sleep_s

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if self.sample_sleep_s:
            time.sleep(self.sample_sleep_s)
        return self.images[index], self.labels[index]


class Cnn(nn.Module):
    """Three convolutions, `depth` small residual layers, two linear ones. `extra_rounds` repeats a convolution
    without effect."""

    def __init__(self, options: argparse.Namespace, host_sleep_s: float = 0.0) -> None:
        super().__init__()
        width, hidden = options.width, options.hidden
        self.first = nn.Conv2d(1, width, 3, padding=1)
        self.second = nn.Conv2d(width, 2 * width, 3, padding=1, stride=2)
        self.third = nn.Conv2d(2 * width, 2 * width, 3, padding=1, stride=2)
        self.hidden = nn.Linear(2 * width * (SIDE // 4) ** 2, hidden)
        self.blocks = nn.ModuleList(nn.Linear(SMALL, SMALL) for _ in range(options.depth))
        self.out = nn.Linear(hidden, CLASSES)
        self.extra_rounds = 0
        self.host_sleep_s = host_sleep_s
        self.items = options.fault == "item"

    def forward(self, images: Tensor) -> Tensor:
        x = torch.relu(self.first(images))
        self._between(x)
        x = torch.relu(self.second(x))
        with torch.no_grad():
            for _ in range(self.extra_rounds):
                self.third(x)
        self._between(x)
        x = torch.relu(self.third(x))
        self._between(x)
        x = torch.relu(self.hidden(x.flatten(1)))
        self._between(x)
        for block in self.blocks:
            x = torch.cat([x[:, :SMALL] + torch.relu(block(x[:, :SMALL])) / len(self.blocks), x[:, SMALL:]], 1)
        scores: Tensor = self.out(x)
        return scores

    def _between(self, x: Tensor) -> None:
        """The host's time between two layers: a quarter of the injected delay."""
        if self.items:
            float(x.detach().mean().item())
        if self.host_sleep_s:
            until = time.perf_counter() + self.host_sleep_s / 4
            while time.perf_counter() < until:
                sum(range(200))


def parse() -> argparse.Namespace:
    """The command line; sizes that a fault needs to cost something are its defaults."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--batch-size", type=int, default=64, help="per rank")
    parser.add_argument("--width", type=int, default=16, help="channels of the first convolution")
    parser.add_argument("--hidden", type=int, help="units of the first linear layer")
    parser.add_argument("--depth", type=int, help="small residual layers")
    parser.add_argument("--workers", type=int, default=0, help="DataLoader workers per rank")
    parser.add_argument("--fault", choices=FAULTS, default="none")
    parser.add_argument("--fault-rank", type=int, help="the culprit (default: the last rank)")
    parser.add_argument("--fault-ms", type=float, default=30.0, help="size of the fault per step in milliseconds")
    parser.add_argument("--backend", choices=("auto", "gloo", "nccl"), default="auto")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--threads", type=int, default=1, help="CPU threads per rank, so that ranks do not fight for cores"
    )
    parser.add_argument("--losses", help="rank 0 writes the losses here, one per line, in hexadecimal")
    options = parser.parse_args()
    if options.hidden is None:
        options.hidden = {"no-overlap": 2048, "big-model": 6144}.get(options.fault, 256)
    if options.depth is None:
        options.depth = 96 if options.fault == "tiny-buckets" else 0
    return options


def build(options: argparse.Namespace, rank: int, device: torch.device) -> DistributedDataParallel:
    """The model on its device, with the fault that lives in it."""
    torch.manual_seed(options.seed)
    mine = rank == options.fault_rank
    delay_s = options.fault_ms / 1e3
    model = Cnn(options, host_sleep_s=delay_s if options.fault == "slow-host" and mine else 0.0).to(device)
    if options.fault == "slow-rank" and mine:
        model.extra_rounds = _rounds_for(delay_s, model, options.batch_size, device)
    bucket_cap_mb = {"tiny-buckets": 0.001, "no-overlap": 1000.0}.get(options.fault)
    ids = [device.index] if device.type == "cuda" else None
    if bucket_cap_mb is None:
        return DistributedDataParallel(model, device_ids=ids)
    # DDP's first bucket has a limit of its own, which would hide the fault.
    setattr(dist, "_DEFAULT_FIRST_BUCKET_BYTES", int(bucket_cap_mb * 2**20))  # noqa: B010
    return DistributedDataParallel(model, device_ids=ids, bucket_cap_mb=bucket_cap_mb)


def _rounds_for(delay_s: float, model: Cnn, batch_size: int, device: torch.device) -> int:
    """How often the extra convolution must run to take `delay_s` on this device, measured before training.

    On the CPU in CPU time: on a busy machine wall time would give a fault that is too small.
    """
    clock = time.perf_counter if device.type == "cuda" else time.thread_time
    images = torch.zeros(batch_size, model.second.out_channels, SIDE // 2, SIDE // 2, device=device)

    def measure(rounds: int) -> float:
        started = clock()
        with torch.no_grad():
            for _ in range(rounds):
                model.third(images)
        if device.type == "cuda":
            torch.cuda.synchronize()
        return clock() - started

    measure(3)
    return max(1, round(delay_s / (min(measure(10) for _ in range(3)) / 10)))


def loader_of(options: argparse.Namespace, rank: int, world_size: int) -> DataLoader[tuple[Tensor, int]]:
    """Training data of this rank."""
    slow = options.fault == "slow-loader" or (options.fault == "loader-straggler" and rank == options.fault_rank)
    sample_sleep_s = options.fault_ms / 1e3 / options.batch_size if slow else 0.0
    digits = Digits(options.batch_size * world_size * EPOCH_STEPS, options.seed, sample_sleep_s)
    sampler: DistributedSampler[Any] = DistributedSampler(digits, world_size, rank, shuffle=True, seed=options.seed)
    return DataLoader(
        digits, batch_size=options.batch_size, sampler=sampler, num_workers=options.workers, drop_last=True
    )


def batches(loader: DataLoader[tuple[Tensor, int]], steps: int) -> Iterator[tuple[Tensor, Tensor]]:
    """`steps` batches, over as many epochs as they take."""
    done = 0
    for epoch in itertools.count():
        if isinstance(loader.sampler, DistributedSampler):
            loader.sampler.set_epoch(epoch)
        for images, labels in loader:
            if done == steps:
                return
            yield images, labels
            done += 1


def unbalanced(images: Tensor, labels: Tensor, step: int, rank: int, world_size: int) -> tuple[Tensor, Tensor]:
    """Half a batch for every rank but one, and a batch and a half for a rank that changes at each step."""
    heavy = (step * 7 + step // 3) % world_size == rank
    if heavy:
        return torch.cat([images, images[: len(images) // 2]]), torch.cat([labels, labels[: len(labels) // 2]])
    return images[: len(images) // 2], labels[: len(labels) // 2]


def after_step(options: argparse.Namespace, step: int, rank: int, model: nn.Module, ballast: list[Any]) -> None:
    """Faults that live between steps."""
    if options.fault == "gc":
        # Each rank collects in a step of its own, over enough objects to take the injected time.
        if step % dist.get_world_size() == rank:
            gc.collect()
    elif options.fault == "checkpoint" and rank == 0 and step % 2 == 1:
        deadline = time.perf_counter() + 2 * options.fault_ms / 1e3
        while time.perf_counter() < deadline:
            torch.save({"model": model.state_dict()}, io.BytesIO())


def garbage_for(delay_s: float) -> list[Any]:
    """Long-lived objects in such number that a full collection takes about `delay_s`."""
    ballast: list[Any] = []
    gc.freeze()  # what the interpreter and torch hold already would take longer than the fault
    while True:
        ballast.extend([[i] for i in range(50_000)])
        started = time.thread_time()
        gc.collect()
        if time.thread_time() - started >= delay_s or len(ballast) > 20_000_000:
            return ballast


def train(options: argparse.Namespace) -> list[float]:
    """The training loop every tutorial has. Returns the losses of this rank."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    device = _device()
    if options.fault_rank is None:
        options.fault_rank = world_size - 1
    model = build(options, rank, device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loss_of = nn.CrossEntropyLoss()
    ballast = garbage_for(options.fault_ms / 1e3) if options.fault == "gc" else []
    losses: list[Tensor] = []
    for step, (images, labels) in enumerate(batches(loader_of(options, rank, world_size), options.steps)):
        images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        if options.fault == "imbalance":
            images, labels = unbalanced(images, labels, step, rank, world_size)
        optimizer.zero_grad()
        loss = loss_of(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        after_step(options, step, rank, model, ballast)
    return [float(loss) for loss in losses]


def _device() -> torch.device:
    if torch.cuda.is_available():
        index = int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count()
        torch.cuda.set_device(index)
        return torch.device("cuda", index)
    return torch.device("cpu")


def main() -> None:
    """Train on this rank; rank 0 reports."""
    options = parse()
    torch.set_num_threads(options.threads)
    backend = options.backend
    if backend == "auto":
        backend = "nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend)
    started = time.perf_counter()
    losses = train(options)
    if dist.get_rank() == 0:
        seconds = time.perf_counter() - started
        print(f"{len(losses)} steps, {1e3 * seconds / max(len(losses), 1):.1f} ms per step, last loss {losses[-1]:.4f}")
        if options.losses:
            with open(options.losses, "w", encoding="ascii") as stream:
                stream.writelines(f"{loss.hex()}\n" for loss in losses)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
