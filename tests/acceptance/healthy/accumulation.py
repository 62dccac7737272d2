"""Four micro-batches per optimizer step, the first three under no_sync."""

import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

MICRO = 4


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(200, 600), nn.SiLU(), nn.Linear(600, 600), nn.SiLU(), nn.Linear(600, 200)))
    optimizer = torch.optim.AdamW(model.parameters())
    for index in range(45 * MICRO):
        last = index % MICRO == MICRO - 1
        x = torch.randn(32, 200)
        with contextlib.nullcontext() if last else model.no_sync():
            (nn.functional.l1_loss(model(x), x) / MICRO).backward()
        if last:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    dist.destroy_process_group()


main()
