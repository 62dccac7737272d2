"""Statistics of every parameter in every step."""

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
    nn.Sequential(*[nn.Sequential(nn.Linear(128, 128), nn.Tanh()) for _ in range(30)])
)
opt = torch.optim.RMSprop(net.parameters(), 1e-4)
rows = []


def report(i):
    r = {"i": i}
    for n, q in net.named_parameters():
        r[n] = (q.norm().item(), q.grad.abs().max().item(), q.std().item(), q.grad.mean().item())
    rows.append(r)


for i in range(STEPS):
    net(torch.randn(64, 128)).mean().backward()
    report(i)
    opt.step()
    opt.zero_grad()
