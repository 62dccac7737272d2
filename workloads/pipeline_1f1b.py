"""A GPT in pipeline stages, one per rank, schedule 1F1B of torch.distributed.pipelining, with faults to switch on.

    ddprof run -- torchrun --nproc-per-node=2 workloads/pipeline_1f1b.py --fault stage-imbalance

stage-imbalance gives one stage (--fault-rank) three quarters of two stages' blocks; few-microbatches splits the batch
into as many microbatches as there are stages.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

from ddprof.workloads.arguments import Switches, parse
from ddprof.workloads.catalogue import WORKLOADS
from ddprof.workloads.job import Place, run
from ddprof.workloads.loading import batches, make_loader
from ddprof.workloads.nets_gpt import Block, Embedding, GptSize, Head, next_word_loss
from ddprof.workloads.sizes import add_text_sizes
from ddprof.workloads.texts import LONGEST, cut, texts_for

WORKLOAD = WORKLOADS["pipeline_1f1b"]


def options() -> argparse.Namespace:
    """The command line."""

    def extend(parser: argparse.ArgumentParser) -> None:
        add_text_sizes(parser, layers=4, length=48, width=192)
        parser.add_argument("--microbatches", type=int, default=8)

    given = parse(WORKLOAD, __doc__ or "", extend)
    given.batch_size = max(given.batch_size, 32)
    return given


def blocks_of(switches: Switches, layers: int, stages: int) -> int:
    """Blocks of this rank's stage."""
    even = layers // stages
    if not switches.on("stage-imbalance", until="even"):
        return even
    moved = even // 2
    if not moved:
        raise SystemExit(f"stage-imbalance needs two layers per stage to move one: --layers {2 * stages}")
    if switches.rank == switches.fault_rank:
        return even + moved
    return even - moved if switches.rank == (switches.fault_rank + 1) % stages else even


def microbatches_of(switches: Switches, usual: int, stages: int) -> int:
    """Microbatches per step."""
    if not switches.on("few-microbatches"):
        return usual
    return 2 * stages if switches.fixed_by("microbatches") else stages


def build(given: argparse.Namespace, place: Place) -> nn.Sequential:
    """This rank's stage: the first embeds, the last scores."""
    size = GptSize(given.width, given.heads, given.layers, round(LONGEST * given.length), given.words)
    parts: list[nn.Module] = [Block(size) for _ in range(blocks_of(place.switches, given.layers, place.world_size))]
    if place.rank == 0:
        parts.insert(0, Embedding(size))
    if place.rank == place.world_size - 1:
        parts.append(Head(size))
    return nn.Sequential(*parts).to(place.device)


def train(given: argparse.Namespace, place: Place) -> list[float]:
    """Train on this rank. Returns the losses of the last stage, zeros on the others."""
    network = build(given, place)
    stage = PipelineStage(network, place.rank, place.world_size, place.device)
    count = microbatches_of(place.switches, given.microbatches, place.world_size)
    schedule = Schedule1F1B(stage, count, loss_fn=next_word_loss)
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-4)
    texts = texts_for(given.batch_size, 1, given.length, given.words, given.seed)
    loader = make_loader(texts, given, place, shards=(1, 0))
    losses: list[float] = []
    for batch in place.watch.laps(batches(loader, given.steps)):
        tokens = cut(batch, given.length).to(place.device, non_blocking=True)
        optimizer.zero_grad()
        losses.append(_one_step(schedule, tokens, place))
        optimizer.step()
    return losses


def _one_step(schedule: Any, tokens: Tensor, place: Place) -> float:
    """Forward and backward of all microbatches; the mean loss where it is known."""
    if place.rank == place.world_size - 1:
        losses: list[Tensor] = []
        schedule.step(*([tokens] if place.world_size == 1 else []), target=tokens, losses=losses)
        return float(torch.stack(losses).detach().mean())
    schedule.step(*([tokens] if place.rank == 0 else []))
    return 0.0


if __name__ == "__main__":
    run(WORKLOAD, options(), train)
