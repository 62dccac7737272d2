"""Rank 0 saves every ten steps; `barrier`: the others wait for it at once, else in the next step."""

import os
import sys
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

MEET = sys.argv[1] == "barrier"


class Mlp(nn.Module):
    def __init__(self, width=700):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(32, width), nn.GELU(), nn.Linear(width, width), nn.GELU())
        self.memory = nn.Embedding(6000, width)
        self.head = nn.Linear(width, 32)

    def forward(self, x, ids):
        return self.head(self.body(x) + self.memory(ids))


def keep(folder, step, model, optimizer):
    path = os.path.join(folder, f"step{step % 20}.pt")
    torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)


def main(folder):
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = Mlp()
    model.memory.weight.requires_grad_(False)
    ddp = DDP(model)
    adam = torch.optim.Adam(filter(lambda p: p.requires_grad, model.parameters()), lr=1e-3)
    for step in range(60):
        x, ids = torch.randn(48, 32), torch.randint(6000, (48,))
        loss = (ddp(x, ids) - x).pow(2).mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
        if step % 10 == 9:
            if dist.get_rank() == 0:
                keep(folder, step, model, adam)
            if MEET:
                dist.barrier()
    dist.destroy_process_group()


with tempfile.TemporaryDirectory() as temporary:
    main(temporary)
