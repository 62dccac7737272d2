"""Fine-tuning of BERT (Hugging Face BertForSequenceClassification, weights at random) with Accelerate.

    ddprof run -- torchrun --nproc-per-node=2 workloads/bert_accelerate.py --fault imbalance
    ddprof run -- accelerate launch --num-processes 8 workloads/bert_accelerate.py --width 768 --heads 12 --layers 12

Needs transformers and accelerate; nothing is downloaded. BERT base is the second line with --length 512.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from torch import Tensor, nn

from ddprof.workloads.arguments import parse
from ddprof.workloads.between_steps import BetweenSteps
from ddprof.workloads.burdens import burden
from ddprof.workloads.catalogue import WORKLOADS
from ddprof.workloads.chores import Chores
from ddprof.workloads.job import Place, require, run
from ddprof.workloads.loading import batches, make_loader, share_of_work
from ddprof.workloads.meetings import Meetings
from ddprof.workloads.preparing import Preparing
from ddprof.workloads.sizes import add_text_sizes
from ddprof.workloads.texts import LONGEST, cut, texts_for

WORKLOAD = WORKLOADS["bert_accelerate"]
LABELS = 2


def options() -> argparse.Namespace:
    """The command line."""
    given = parse(WORKLOAD, __doc__ or "", lambda parser: add_text_sizes(parser, layers=2))
    if given.fault == "imbalance":
        given.length *= 4  # the work of a step must follow the length of its sequences
    return given


def build(given: argparse.Namespace) -> Any:
    """BERT from its configuration."""
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=given.words,
        hidden_size=given.width,
        num_hidden_layers=given.layers,
        num_attention_heads=given.heads,
        intermediate_size=4 * given.width,
        max_position_embeddings=round(LONGEST * given.length),
        num_labels=LABELS,
    )
    return BertForSequenceClassification(config)


def train(given: argparse.Namespace, place: Place) -> list[float]:
    """Train on this rank. Returns the losses."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=place.device.type == "cpu")
    network = build(given)
    linears = [m for m in network.bert.encoder.modules() if isinstance(m, nn.Linear)]
    burden(place, linears, heavy=linears[0])
    model, optimizer = accelerator.prepare(network, torch.optim.AdamW(network.parameters(), lr=5e-5))
    texts = texts_for(given.batch_size, place.world_size, given.length, given.words, given.seed)
    loader = make_loader(texts, given, place)
    held_back = cut(texts[0][None], given.length).repeat(given.batch_size, 1).to(place.device)
    between = BetweenSteps(place, network, lambda: network(input_ids=held_back))
    preparing, chores = Preparing(place), Chores(place, network)
    meetings = Meetings(place, accelerator.gather_for_metrics)
    losses: list[Tensor] = []
    for step, batch in enumerate(place.watch.laps(batches(loader, given.steps))):
        share = share_of_work(place.switches, step, place.world_size)
        tokens = preparing.texts(cut(batch, given.length, share)).to(place.device, non_blocking=True)
        labels = tokens[:, 0] % LABELS
        optimizer.zero_grad()
        told = model(input_ids=tokens, labels=labels)
        loss = told.loss
        accelerator.backward(loss)
        optimizer.step()
        if place.switches.on("item", until="deferred"):
            loss.item()
        losses.append(loss.detach())
        chores.after(step, loss)
        meetings.after(step, told.logits, labels)
        between.after(step)
    between.finish()
    return [float(loss) for loss in losses]


if __name__ == "__main__":
    given_options = options()
    require(WORKLOAD)
    run(WORKLOAD, given_options, train)
