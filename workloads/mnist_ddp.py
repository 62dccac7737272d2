"""A CNN on a generated MNIST-like set under DistributedDataParallel, with faults to switch on.

    ddprof run -- torchrun --nproc-per-node=2 workloads/mnist_ddp.py --fault slow-loader
    ddprof run -- torchrun --nproc-per-node=2 workloads/mnist_ddp.py --fault slow-loader --fix workers

tiny-buckets trains a deep stack of small layers, no-overlap and big-model a wider layer, or their fault would cost
nothing; `--fix` keeps these sizes. item costs only on a GPU, where the host waits for its device.
shaped-link only sets sizes: slow_link.py, around torchrun, slows the link.

Deterministic: the data, the model and the order of samples depend on the seed alone.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from ddprof.workloads.arguments import parse
from ddprof.workloads.between_steps import BetweenSteps
from ddprof.workloads.burdens import burden
from ddprof.workloads.catalogue import WORKLOADS
from ddprof.workloads.chores import Chores
from ddprof.workloads.gradients import data_parallel, micro_batches, sent
from ddprof.workloads.job import Place, run
from ddprof.workloads.loading import batches, epoch_steps, make_loader, share_of_work
from ddprof.workloads.meetings import Meetings

WORKLOAD = WORKLOADS["mnist_ddp"]
CLASSES = 10
SIDE = 28
SMALL = 32  # width of a residual layer
# Sizes that a fault needs to cost something.
HIDDEN = {
    **{"no-overlap": 2048, "big-model": 6144, "slow-link": 512, "shaped-link": 512},
    **{"sent-each-time": 1024, "zero-grad": 4096},
}
DEPTHS = {"tiny-buckets": 96, "clip-each": 96, "unused-parameters": 96}


class Digits(Dataset[tuple[Tensor, int]]):
    """Noisy prototypes of ten classes, held in memory."""

    def __init__(self, count: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        prototypes = torch.rand(CLASSES, 1, SIDE, SIDE, generator=generator)
        labels = torch.randint(CLASSES, (count,), generator=generator)
        noise = torch.randn(count, 1, SIDE, SIDE, generator=generator)
        self.images = (prototypes[labels] + 0.3 * noise).unbind()
        self.labels: list[int] = labels.tolist()

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.images[index], self.labels[index]


class Cnn(nn.Module):
    """Three convolutions, `depth` small residual layers, two linear ones. `items`: read a value after every layer."""

    def __init__(self, width: int, hidden: int, depth: int, items: bool) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, width, 3, padding=1)
        self.second = nn.Conv2d(width, 2 * width, 3, padding=1, stride=2)
        self.third = nn.Conv2d(2 * width, 2 * width, 3, padding=1, stride=2)
        self.hidden = nn.Linear(2 * width * (SIDE // 4) ** 2, hidden)
        self.blocks = nn.ModuleList(nn.Linear(SMALL, SMALL) for _ in range(depth))
        self.out = nn.Linear(hidden, CLASSES)
        self.items = items

    def forward(self, images: Tensor) -> Tensor:
        """Logits (batch, classes) of images (batch, 1, side, side)."""
        x = images
        for convolution in (self.first, self.second, self.third):
            x = self._seen(torch.relu(convolution(x)))
        x = self._seen(torch.relu(self.hidden(x.flatten(1))))
        for block in self.blocks:
            x = torch.cat([x[:, :SMALL] + torch.relu(block(x[:, :SMALL])) / len(self.blocks), x[:, SMALL:]], 1)
        scores: Tensor = self.out(x)
        return scores

    def _seen(self, x: Tensor) -> Tensor:
        if self.items:
            float(x.detach().mean().item())
        return x


def options() -> argparse.Namespace:
    """The command line; sizes that a fault needs to cost something are its defaults."""

    def extend(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--batch-size", type=int, default=64, help="per rank")
        parser.add_argument("--width", type=int, default=16, help="channels of the first convolution")
        parser.add_argument("--hidden", type=int, help="units of the first linear layer")
        parser.add_argument("--depth", type=int, help="small residual layers")
        parser.add_argument("--bucket-cap-mb", type=float, help="of DDP, the first bucket too (default: DDP's own)")

    given = parse(WORKLOAD, __doc__ or "", extend)
    if given.hidden is None:
        given.hidden = HIDDEN.get(given.fault, 256)
    if given.depth is None:
        given.depth = DEPTHS.get(given.fault, 0)
    return given


def train(given: argparse.Namespace, place: Place) -> list[float]:
    """The training loop every tutorial has. Returns the losses of this rank."""
    switches = place.switches
    network = Cnn(given.width, given.hidden, given.depth, switches.on("item", until="deferred")).to(place.device)
    burden(place, [network.first, network.second, network.third, network.hidden], heavy=network.third)
    model = data_parallel(network, place, given.bucket_cap_mb)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loss_of = nn.CrossEntropyLoss()
    digits = Digits(given.batch_size * place.world_size * epoch_steps(switches), given.seed)
    loader = make_loader(digits, given, place)
    held_back = torch.stack(digits.images[: given.batch_size]).to(place.device)
    between = BetweenSteps(place, network, lambda: network(held_back))
    chores, meetings = Chores(place, network), Meetings(place)
    keeps_gradients = switches.on("zero-grad", until="none")
    losses: list[Tensor] = []
    for step, (images, labels) in enumerate(place.watch.laps(batches(loader, given.steps))):
        images, labels = images.to(place.device, non_blocking=True), labels.to(place.device, non_blocking=True)
        images, labels = resized(images, labels, share_of_work(switches, step, place.world_size))
        optimizer.zero_grad(set_to_none=not keeps_gradients)
        for (part, wanted), last in micro_batches(switches, images, labels):
            with sent(model, switches, last):
                scores = model(part)
                loss = loss_of(scores, wanted)
                loss.backward()
        chores.before_step()
        optimizer.step()
        losses.append(loss.detach())
        chores.after(step, loss)
        meetings.after(step, scores, wanted)
        between.after(step)
    between.finish()
    return [float(loss) for loss in losses]


def resized(images: Tensor, labels: Tensor, share: float) -> tuple[Tensor, Tensor]:
    """The batch cut or repeated to a share of its size."""
    if share == 1.0:
        return images, labels
    rows = torch.arange(round(len(images) * share), device=images.device) % len(images)
    return images[rows], labels[rows]


if __name__ == "__main__":
    run(WORKLOAD, options(), train)
