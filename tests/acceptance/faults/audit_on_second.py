"""Python on rank 1 alone."""

import random
import sys

import chores
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
    nn.Sequential(nn.Linear(256, 768), nn.ReLU(), nn.Linear(768, 768), nn.ReLU(), nn.Linear(768, 4))
)
opt = torch.optim.SGD(net.parameters(), 0.01)


def after_step(i):
    if R == 1:
        chores.audit(250000)


def main():
    for i in range(STEPS):
        opt.zero_grad()
        loss = net(torch.randn(64, 256)).var()
        loss.backward()
        opt.step()
        after_step(i)


main()
