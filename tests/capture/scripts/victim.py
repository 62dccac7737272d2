"""Trains until it is killed; prints its pid and each finished step."""

import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(0)
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(16, 16))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
loader = DataLoader(TensorDataset(torch.randn(80_000, 16)), batch_size=8)
os.write(1, f"rank {dist.get_rank()} pid {os.getpid()}\n".encode())
for step, (x,) in enumerate(loader):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
    os.write(1, f"rank {dist.get_rank()} step {step}\n".encode())
    time.sleep(0.02)
