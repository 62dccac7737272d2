"""ResNet-50 on generated compressed images under DistributedDataParallel, with faults to switch on.

    ddprof run -- torchrun --nproc-per-node=2 workloads/resnet50_ddp.py --fault decode
    ddprof run -- torchrun --nproc-per-node=8 workloads/resnet50_ddp.py --width 64 --side 224 --batch-size 64

Images are entropy-coded cosine coefficients, decoded in the loader as JPEGs are; decode stores them much larger than
the network wants them. The real network is --width 64.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn

from ddprof.workloads.arguments import parse
from ddprof.workloads.between_steps import BetweenSteps
from ddprof.workloads.burdens import burden
from ddprof.workloads.catalogue import WORKLOADS
from ddprof.workloads.gradients import data_parallel
from ddprof.workloads.job import Place, run
from ddprof.workloads.loading import EPOCH_STEPS, batches, make_loader, share_of_work
from ddprof.workloads.nets_resnet import ResNet50
from ddprof.workloads.pictures import Pictures
from ddprof.workloads.preparing import Preparing

WORKLOAD = WORKLOADS["resnet50_ddp"]
CLASSES = 100
LARGE_SIDES = 8  # stored size of an image relative to the side the network wants, where decoding is the fault


def options() -> argparse.Namespace:
    """The command line."""

    def extend(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--batch-size", type=int, default=8, help="per rank")
        parser.add_argument("--width", type=int, default=8, help="channels of the first stage; 64 is the real one")
        parser.add_argument("--side", type=int, default=48, help="of an image, a multiple of 8; 224 is the usual one")

    given = parse(WORKLOAD, __doc__ or "", extend)
    if given.fault in ("no-overlap", "slow-link"):
        given.width = max(given.width, 16)
    if given.fault == "imbalance":
        given.batch_size *= 3  # the work of a step must follow the size of its batch
    return given


def train(given: argparse.Namespace, place: Place) -> list[float]:
    """Train on this rank. Returns the losses."""
    switches = place.switches
    network = ResNet50(given.width, CLASSES).to(place.device)
    convolutions = [m for m in network.modules() if isinstance(m, nn.Conv2d)]
    burden(place, convolutions, heavy=convolutions[0])
    model = data_parallel(network, place)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    stored = given.side * (LARGE_SIDES if given.fault == "decode" else 1)
    count = given.batch_size * place.world_size * EPOCH_STEPS
    pictures = Pictures(count, given.side, stored, CLASSES, given.seed, cached=switches.fixed_by("cached"))
    loader = make_loader(pictures, given, place)
    between, preparing = BetweenSteps(place, network), Preparing(place)
    loss_of = nn.CrossEntropyLoss()
    losses: list[Tensor] = []
    for step, (images, labels) in enumerate(place.watch.laps(batches(loader, given.steps))):
        images = preparing.images(images)
        images, labels = images.to(place.device, non_blocking=True), labels.to(place.device, non_blocking=True)
        share = share_of_work(switches, step, place.world_size)
        if share != 1.0:
            rows = torch.arange(round(len(images) * share), device=images.device) % len(images)
            images, labels = images[rows], labels[rows]
        optimizer.zero_grad()
        loss = loss_of(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        between.after(step)
    between.finish()
    return [float(loss) for loss in losses]


if __name__ == "__main__":
    run(WORKLOAD, options(), train)
