"""The workers of rank 0 read from a slow mount."""

import sys
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Tiles(Dataset):
    def __init__(self, is_slow):
        self.each_s = 0.009 if is_slow else 0.0005

    def __len__(self):
        return 8000

    def read_tile(self, i):
        time.sleep(self.each_s)
        return torch.full((128,), float(i))

    def __getitem__(self, i):
        return self.read_tile(i), i % 3


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    tiles = Tiles(dist.get_rank() == 0)
    loader = DataLoader(tiles, 16, sampler=DistributedSampler(tiles), num_workers=2)
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(128, 3))
    opt = torch.optim.SGD(net.parameters(), 0.1)
    for n, (x, y) in enumerate(loader):
        if n == int(sys.argv[1]):
            break
        opt.zero_grad()
        torch.nn.functional.cross_entropy(net(x), y).backward()
        opt.step()
    dist.destroy_process_group()


main()
