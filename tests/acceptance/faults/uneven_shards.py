"""Rank 1's shard has batches twice the size of rank 0's; Join lets ranks end when their data does."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(4)
size = 512 if rank == 0 else 1024
shard = TensorDataset(torch.randn(size * 40, 300), torch.randn(size * 40, 8))
loader = DataLoader(shard, batch_size=size, shuffle=True)
model = DDP(nn.Sequential(nn.Linear(300, 640), nn.Tanh(), nn.Linear(640, 640), nn.Tanh(), nn.Linear(640, 8)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
with Join([model]):
    for features, targets in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(features), targets).backward()
        optimizer.step()
dist.destroy_process_group()
