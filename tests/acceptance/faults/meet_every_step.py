"""Barriers after every step, called in another module."""

import random
import sys

import chores
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

STEPS = int(sys.argv[1])
torch.set_num_threads(1)
dist.init_process_group("gloo")
R, W = dist.get_rank(), dist.get_world_size()
torch.manual_seed(R)
random.seed(R)


class Net(nn.Module):
    def __init__(s):
        super().__init__()
        s.inp = nn.Linear(300, 500)
        s.mid = nn.ModuleList([nn.Linear(500, 500) for _ in range(5)])
        s.out = nn.Linear(500, 7)

    def forward(s, x):
        x = s.inp(x).relu()
        for m in s.mid:
            x = x + m(x).tanh()
        return s.out(x)


net = nn.parallel.DistributedDataParallel(Net())
sgd = torch.optim.SGD(net.parameters(), 1e-2, momentum=0.9)
k = 0
while k < STEPS:
    x = torch.randn(96, 300)
    y = torch.randint(0, 7, (96,))
    sgd.zero_grad()
    F.cross_entropy(net(x), y).backward()
    sgd.step()
    chores.line_up()
    k += 1
dist.destroy_process_group()
