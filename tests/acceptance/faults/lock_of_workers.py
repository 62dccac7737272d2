"""Workers of a loader that take turns at a lock."""

import multiprocessing as mp
import os
import random
import sys
import time

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

gate = mp.Lock()


class Vault(torch.utils.data.Dataset):
    def __len__(s):
        return 10**6

    def read(s, i):
        with gate:
            time.sleep(0.004)
        return torch.full((200,), float(i % 3))

    def __getitem__(s, i):
        return s.read(i), i % 5


if __name__ == "__main__":
    dl = torch.utils.data.DataLoader(Vault(), batch_size=16, num_workers=3)
    net = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(200, 400), nn.ReLU(), nn.Linear(400, 5)))
    opt = torch.optim.SGD(net.parameters(), 0.01)
    for i, (x, y) in enumerate(dl):
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
        if i == STEPS:
            break
    os._exit(0)
