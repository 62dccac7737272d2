"""DDP of a small model in which one rank does something else before each step."""

import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

slow_rank = int(sys.argv[1])
torch.set_num_threads(1)
torch.manual_seed(0)
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(64, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(2048, 64))
loader = DataLoader(data, batch_size=16, sampler=DistributedSampler(data))
for step, (x,) in enumerate(loader):
    if step >= 14:
        break
    if dist.get_rank() == slow_rank:
        time.sleep(0.1)
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
