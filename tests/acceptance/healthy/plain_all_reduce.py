"""No wrapper: one flat all-reduce of all gradients after each backward pass."""

import torch
import torch.distributed as dist
from torch import nn


def average_gradients(model):
    grads = [p.grad for p in model.parameters()]
    flat = torch.cat([g.flatten() for g in grads])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    start = 0
    for g in grads:
        g.copy_(flat[start : start + g.numel()].view_as(g))
        start += g.numel()


dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(400, 800), nn.ReLU(), nn.Linear(800, 800), nn.ReLU(), nn.Linear(800, 400))
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-4)
torch.manual_seed(dist.get_rank())
for _ in range(50):
    x = torch.randn(64, 400)
    nn.functional.mse_loss(model(x), x).backward()
    average_gradients(model)
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
