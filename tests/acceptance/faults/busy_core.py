"""Rank 1 is pinned to a core that three other processes keep busy; rank 0 has the other cores."""

import multiprocessing
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def burn(core, parent):
    os.sched_setaffinity(0, {core})
    while os.getppid() == parent:
        sum(range(100000))


def work():
    dist.init_process_group("gloo")
    torch.manual_seed(6)
    model = DDP(nn.Sequential(nn.Linear(256, 768), nn.ReLU(), nn.Linear(768, 768), nn.ReLU(), nn.Linear(768, 4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(50):
        optimizer.zero_grad()
        model(torch.randn(96, 256)).pow(2).mean().backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    cores = sorted(os.sched_getaffinity(0))
    neighbours = []
    if os.environ["RANK"] == "1":
        os.sched_setaffinity(0, {cores[-1]})
        spawn = multiprocessing.get_context("fork")
        neighbours = [spawn.Process(target=burn, args=(cores[-1], os.getpid()), daemon=True) for _ in range(3)]
        for neighbour in neighbours:
            neighbour.start()
    else:
        os.sched_setaffinity(0, set(cores[:-1]))
    work()
    for neighbour in neighbours:
        neighbour.terminate()
