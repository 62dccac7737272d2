"""Gradients of four micro-batches, reduced each time."""

import random
import sys

import torch
import torch.distributed as dist
import torch.nn as nn

STEPS = int(sys.argv[1])
torch.set_num_threads(1)
dist.init_process_group("gloo")
R, W = dist.get_rank(), dist.get_world_size()
torch.manual_seed(R)
random.seed(R)
net = nn.parallel.DistributedDataParallel(
    nn.Sequential(nn.Linear(512, 1536), nn.GELU(), nn.Linear(1536, 1536), nn.GELU(), nn.Linear(1536, 6))
)
opt = torch.optim.SGD(net.parameters(), 0.01)
pend = 0
for _i in range(STEPS):
    loss = net(torch.randn(6, 512)).square().mean() / 4
    loss.backward()
    pend += 1
    if pend == 4:
        opt.step()
        opt.zero_grad()
        pend = 0
