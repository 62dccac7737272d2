"""Rank 0 evaluates in a function of its own every N steps while rank 1 waits in the next all-reduce."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

EVERY = int(sys.argv[1])
STEPS = 60


def evaluate(net, held_out):
    net.eval()
    right = 0
    with torch.no_grad():
        for x, y in held_out:
            right += (net(x).argmax(1) == y).sum().item()
    net.train()
    return right / 2048


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    images, labels = torch.randn(128 * STEPS, 256), torch.randint(10, (128 * STEPS,))
    train = TensorDataset(images, labels)
    sampler = DistributedSampler(train)
    loader = DataLoader(train, batch_size=64, sampler=sampler)
    held_out = DataLoader(TensorDataset(torch.randn(2048, 256), torch.randint(10, (2048,))), batch_size=256)
    net = DDP(nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)))
    sgd = torch.optim.SGD(net.parameters(), lr=0.01)
    sampler.set_epoch(0)
    for step, (x, y) in enumerate(loader):
        sgd.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        sgd.step()
        if rank == 0 and step % EVERY == EVERY - 1:
            evaluate(net.module, held_out)
    dist.destroy_process_group()


main()
