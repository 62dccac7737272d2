"""Rank 0 saves model and optimizer in every second step."""

import os
import random
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn

STEPS = int(sys.argv[1])
torch.set_num_threads(1)
dist.init_process_group("gloo")
R, W = dist.get_rank(), dist.get_world_size()
torch.manual_seed(R)
random.seed(R)
TMP = tempfile.mkdtemp()
m = nn.parallel.DistributedDataParallel(
    nn.Sequential(nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 8))
)
o = torch.optim.Adam(m.parameters())


class Keeper:
    def __init__(s, every):
        s.every = every

    def __call__(s, i):
        if R == 0 and i % s.every == 0:
            torch.save({"w": m.module.state_dict(), "o": o.state_dict()}, os.path.join(TMP, "last.pt"))


keep = Keeper(2)
for i in range(STEPS):
    x = torch.randn(48, 1024)
    with torch.enable_grad():
        loss = m(x).square().mean()
    loss.backward()
    o.step()
    o.zero_grad()
    keep(i)
