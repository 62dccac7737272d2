"""A Llama-style model on a two-dimensional mesh: tensor parallel inside a replica, or hybrid sharded.

    ddprof run -- torchrun --nproc-per-node=4 workloads/llama_hsdp_tp.py --fault slow-host
    ddprof run -- torchrun --nproc-per-node=4 workloads/llama_hsdp_tp.py --layout hsdp

--layout tp: pairs of ranks split every projection (DTensor), pairs of pairs share the data through fully_shard.
--layout hsdp: fully_shard inside pairs, replicas between them. Both ranks of a tensor-parallel pair read the same data.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from ddprof.workloads.arguments import parse
from ddprof.workloads.between_steps import BetweenSteps
from ddprof.workloads.burdens import burden
from ddprof.workloads.catalogue import WORKLOADS
from ddprof.workloads.job import Place, run
from ddprof.workloads.loading import batches, make_loader
from ddprof.workloads.nets_gpt import next_word_loss
from ddprof.workloads.nets_llama import Llama, LlamaSize
from ddprof.workloads.sizes import add_text_sizes
from ddprof.workloads.texts import cut, texts_for

WORKLOAD = WORKLOADS["llama_hsdp_tp"]
INNER = 2  # ranks of a tensor-parallel or shard group


def options() -> argparse.Namespace:
    """The command line."""

    def extend(parser: argparse.ArgumentParser) -> None:
        add_text_sizes(parser, layers=2)
        parser.add_argument("--layout", choices=("tp", "hsdp"), default="tp")

    return parse(WORKLOAD, __doc__ or "", extend)


def build(given: argparse.Namespace, place: Place) -> tuple[Llama, tuple[int, int]]:
    """The model on its mesh, and (data replicas, own replica)."""
    outer = max(1, place.world_size // INNER)
    names = ("dp", "tp") if given.layout == "tp" else ("replicate", "shard")
    mesh = init_device_mesh(place.device.type, (outer, place.world_size // outer), mesh_dim_names=names)
    model = Llama(LlamaSize(given.width, given.heads, given.layers, 3 * given.width, given.words)).to(place.device)
    if given.layout == "tp":
        for block in model.blocks:
            parallelize_module(block, mesh["tp"], _plan())
    sharded: Any = mesh["dp"] if given.layout == "tp" else mesh
    for block in model.blocks:
        fully_shard(block, mesh=sharded)
    fully_shard(model, mesh=sharded)
    if given.layout == "tp":
        return model, (outer, place.rank // INNER)
    return model, (place.world_size, place.rank)


def _plan() -> dict[str, Any]:
    split = {f"attention.{name}": ColwiseParallel() for name in "qkv"}
    gates = {"perceptron.gate": ColwiseParallel(), "perceptron.up": ColwiseParallel()}
    return {**split, "attention.o": RowwiseParallel(), **gates, "perceptron.down": RowwiseParallel()}


def train(given: argparse.Namespace, place: Place) -> list[float]:
    """Train on this rank. Returns the losses."""
    model, shards = build(given, place)
    norms = [m for m in model.blocks.modules() if isinstance(m, nn.RMSNorm)]
    burden(place, norms, heavy=norms[0])
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    texts = texts_for(given.batch_size, shards[0], given.length, given.words, given.seed)
    loader = make_loader(texts, given, place, shards=shards)
    between = BetweenSteps(place, model)
    losses: list[Tensor] = []
    for step, batch in enumerate(place.watch.laps(batches(loader, given.steps))):
        tokens = cut(batch, given.length).to(place.device, non_blocking=True)
        optimizer.zero_grad()
        loss = next_word_loss(model(tokens), tokens)
        torch.autograd.backward(loss)
        optimizer.step()
        losses.append(loss.detach())
        between.after(step)
    between.finish()
    return [float(loss) for loss in losses]


if __name__ == "__main__":
    run(WORKLOAD, options(), train)
