"""A GPT trained by DeepSpeed with ZeRO stage 1, 2 or 3, with faults to switch on.

    ddprof run -- torchrun --nproc-per-node=2 workloads/deepspeed_zero.py --stage 2 --fault slow-host

Needs deepspeed.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn

from ddprof.workloads.arguments import parse
from ddprof.workloads.burdens import burden
from ddprof.workloads.catalogue import WORKLOADS
from ddprof.workloads.job import Place, require, run
from ddprof.workloads.loading import batches, make_loader, share_of_work
from ddprof.workloads.nets_gpt import Gpt, GptSize, next_word_loss
from ddprof.workloads.sizes import add_text_sizes
from ddprof.workloads.texts import LONGEST, cut, texts_for

WORKLOAD = WORKLOADS["deepspeed_zero"]
TINY_ELEMENTS = 1000  # of a bucket: every parameter is reduced by itself
TINY_LAYERS, TINY_WIDTH = 12, 32  # many small parameters, or their calls cost little beside the rest


def options() -> argparse.Namespace:
    """The command line."""

    def extend(parser: argparse.ArgumentParser) -> None:
        add_text_sizes(parser, layers=3)
        parser.add_argument("--stage", type=int, choices=(1, 2, 3), default=2)

    given = parse(WORKLOAD, __doc__ or "", extend)
    if given.fault == "tiny-buckets":
        given.layers, given.width = max(given.layers, TINY_LAYERS), min(given.width, TINY_WIDTH)
    return given


def train(given: argparse.Namespace, place: Place) -> list[float]:
    """Train on this rank. Returns the losses."""
    import deepspeed

    network = Gpt(GptSize(given.width, given.heads, given.layers, round(LONGEST * given.length), given.words))
    norms = [m for m in network.blocks.modules() if isinstance(m, nn.LayerNorm)]
    burden(place, norms, heavy=norms[0])
    zero = {"stage": given.stage}
    if place.switches.on("tiny-buckets", until="buckets"):
        zero["reduce_bucket_size"] = TINY_ELEMENTS
    config = {
        "train_micro_batch_size_per_gpu": given.batch_size,
        "zero_optimization": zero,
        "steps_per_print": 10**9,
    }
    engine, *_ = deepspeed.initialize(
        model=network, optimizer=torch.optim.AdamW(network.parameters(), lr=3e-4), config=config
    )
    texts = texts_for(given.batch_size, place.world_size, given.length, given.words, given.seed)
    losses: list[Tensor] = []
    loader = make_loader(texts, given, place)
    for step, batch in enumerate(place.watch.laps(batches(loader, given.steps))):
        share = share_of_work(place.switches, step, place.world_size)
        tokens = cut(batch, given.length, share).to(place.device, non_blocking=True)
        loss = next_word_loss(engine(tokens), tokens)
        engine.backward(loss)
        engine.step()
        losses.append(loss.detach())
    return [float(loss) for loss in losses]


if __name__ == "__main__":
    given_options = options()
    require(WORKLOAD)
    run(WORKLOAD, given_options, train)
