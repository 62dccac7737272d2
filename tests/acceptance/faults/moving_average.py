"""A moving average over the parameters, one by one, in Python."""

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
body = nn.Sequential(*[nn.Sequential(nn.Linear(160, 160), nn.LayerNorm(160), nn.SiLU()) for _ in range(24)])
dp = nn.parallel.DistributedDataParallel(body)
opt = torch.optim.SGD(dp.parameters(), 1e-3)
shadow = {n: p.detach().clone() for n, p in body.named_parameters()}


def trail(decay):
    for n, p in body.named_parameters():
        s = shadow[n]
        s.mul_(decay)
        s.add_(p.detach() * (1 - decay))
        shadow[n] = s.clone()


def one():
    dp(torch.randn(32, 160)).abs().mean().backward()
    opt.step()
    opt.zero_grad()
    trail(0.999)


for _ in range(STEPS):
    one()
