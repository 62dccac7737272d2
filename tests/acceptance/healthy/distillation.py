"""A large frozen teacher, a small student under DDP."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def mlp(width, depth):
    layers = [nn.Linear(128, width), nn.ReLU()]
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, 20))


dist.init_process_group("gloo")
torch.manual_seed(0)
teacher = mlp(640, 3).eval().requires_grad_(False)
student = DDP(mlp(192, 2))
optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
for _ in range(50):
    batch = torch.randn(80, 128)
    with torch.no_grad():
        wanted = F.softmax(teacher(batch) / 2.0, dim=-1)
    loss = F.kl_div(F.log_softmax(student(batch) / 2.0, dim=-1), wanted, reduction="batchmean")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
