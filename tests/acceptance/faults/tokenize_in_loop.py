"""Texts become numbers in the training loop."""

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
VOC = ["alpha", "beta7", "gamma", "delta", "omega9", "sigma", "kappa"]


def corpus():
    while True:
        yield [" ".join(random.choice(VOC) for _ in range(220)) for _ in range(48)]


net = nn.parallel.DistributedDataParallel(
    nn.Sequential(nn.Embedding(5000, 64), nn.Flatten(), nn.Linear(4096, 256), nn.ReLU(), nn.Linear(256, 2))
)
opt = torch.optim.SGD(net.parameters(), 0.01)
table = {}
for n, texts in enumerate(corpus()):
    if n == STEPS:
        break
    ids = chores.featurize(texts, table)
    loss = F.cross_entropy(net(ids), torch.randint(0, 2, (48,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
