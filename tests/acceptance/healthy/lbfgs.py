"""LBFGS, whose closure runs forward and backward several times per step."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DDP(nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 1)))
solver = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4, history_size=5)
torch.manual_seed(dist.get_rank())
inputs = torch.randn(512, 64)
targets = inputs[:, :1] * inputs[:, 1:2]


def closure():
    solver.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    mean = loss.detach().clone()
    dist.all_reduce(mean)  # both ranks must take the same branch of the line search
    return mean / dist.get_world_size()


for _ in range(40):
    solver.step(closure)
dist.destroy_process_group()
