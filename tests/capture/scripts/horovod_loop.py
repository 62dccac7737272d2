"""A small regression under Horovod's DistributedOptimizer: `horovodrun -np 2 python horovod_loop.py`."""

import json

import horovod.torch as hvd
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

STEPS, BATCH, WIDTH = 12, 4, 16


def main() -> None:
    hvd.init()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(WIDTH, 32), nn.ReLU(), nn.Linear(32, WIDTH))
    data = TensorDataset(torch.randn(2 * BATCH * STEPS, WIDTH))
    sampler = DistributedSampler(data, num_replicas=hvd.size(), rank=hvd.rank())
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=net.named_parameters())
    hvd.broadcast_parameters(net.state_dict(), root_rank=0)
    losses = []
    for (x,) in DataLoader(data, batch_size=BATCH, sampler=sampler):
        optimizer.zero_grad()
        loss = (net(x) - x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    if hvd.rank() == 0:
        print(json.dumps(losses))


if __name__ == "__main__":
    main()
