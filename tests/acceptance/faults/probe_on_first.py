"""Rank 0 evaluates after each step."""

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
enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(96, 4, 192, batch_first=True), 2)
head = nn.Linear(96, 50)
mod = nn.ModuleDict({"e": enc, "h": head})


class Wrap(nn.Module):
    def __init__(s):
        super().__init__()
        s.m = mod

    def forward(s, x):
        return s.m["h"](s.m["e"](x))


par = nn.parallel.DistributedDataParallel(Wrap())
o = torch.optim.Adam(par.parameters(), 1e-3)
dev = [torch.randn(16, 24, 96) for _ in range(3)]


def probe():
    par.eval()
    tot = 0.0
    with torch.inference_mode():
        for d in dev:
            tot += par.module(d).std().item()
    par.train()
    return tot


def epoch(lo, hi):
    for _i in range(lo, hi):
        o.zero_grad()
        out = par(torch.randn(8, 24, 96))
        out.pow(2).mean().backward()
        o.step()
        if dist.get_rank() == 0:
            probe()


for e in range(STEPS // 25):
    epoch(25 * e, 25 * e + 25)
