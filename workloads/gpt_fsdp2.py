"""A GPT whose blocks are sharded by fully_shard (FSDP2), with faults to switch on.

    ddprof run -- torchrun --nproc-per-node=2 workloads/gpt_fsdp2.py --fault resharding
    ddprof run -- torchrun --nproc-per-node=8 workloads/gpt_fsdp2.py --width 768 --heads 12 --layers 12 --length 1024

Blocks keep their parameters between forward and backward, but under resharding, which gathers them twice and trains a
wider model on fewer tokens, so that communication is what counts. GPT-2 small is the second line.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard

from ddprof.workloads.arguments import parse
from ddprof.workloads.between_steps import BetweenSteps
from ddprof.workloads.burdens import burden
from ddprof.workloads.catalogue import WORKLOADS
from ddprof.workloads.chores import Chores
from ddprof.workloads.job import Place, run
from ddprof.workloads.loading import batches, make_loader, share_of_work
from ddprof.workloads.nets_gpt import Gpt, GptSize, next_word_loss
from ddprof.workloads.sizes import add_text_sizes
from ddprof.workloads.texts import LONGEST, cut, texts_for

WORKLOAD = WORKLOADS["gpt_fsdp2"]
SHARDING_WIDTH, SHARDING_LENGTH = 256, 16  # much to gather, little to compute


def options() -> argparse.Namespace:
    """The command line."""
    given = parse(WORKLOAD, __doc__ or "", lambda parser: add_text_sizes(parser, layers=4))
    if given.fault == "resharding":
        given.width, given.length = max(given.width, SHARDING_WIDTH), min(given.length, SHARDING_LENGTH)
    if given.fault == "imbalance":
        given.length *= 4  # the work of a step must follow the length of its sequences
    return given


def build(given: argparse.Namespace, place: Place) -> Gpt:
    """The model, a unit per block."""
    length = round(LONGEST * given.length)
    model = Gpt(GptSize(given.width, given.heads, given.layers, length, given.words)).to(place.device)
    twice = place.switches.on("resharding", until="keep")
    for block in model.blocks:
        fully_shard(block, reshard_after_forward=twice)
    fully_shard(model, reshard_after_forward=twice)
    return model


def train(given: argparse.Namespace, place: Place) -> list[float]:
    """Train on this rank. Returns the losses."""
    switches = place.switches
    model = build(given, place)
    linears = [m for m in model.blocks.modules() if isinstance(m, nn.Linear)]
    burden(place, linears, heavy=linears[0])
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    texts = texts_for(given.batch_size, place.world_size, given.length, given.words, given.seed)
    loader = make_loader(texts, given, place)
    between, chores = BetweenSteps(place, model), Chores(place, model)
    losses: list[Tensor] = []
    for step, batch in enumerate(place.watch.laps(batches(loader, given.steps))):
        share = share_of_work(switches, step, place.world_size)
        tokens = cut(batch, given.length, share).to(place.device, non_blocking=True)
        optimizer.zero_grad()
        loss = next_word_loss(model(tokens), tokens)
        torch.autograd.backward(loss)
        optimizer.step()
        if switches.on("item", until="deferred"):
            loss.item()
        losses.append(loss.detach())
        chores.after(step, loss)
        between.after(step)
    between.finish()
    return [float(loss) for loss in losses]


if __name__ == "__main__":
    run(WORKLOAD, options(), train)
