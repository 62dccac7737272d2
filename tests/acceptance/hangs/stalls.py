"""`stalls.py KIND TIMEOUT_S MARK`: three ranks train and stand still for good at step 12, each kind in one function.
MARK is written when the first of them is about to."""

import ctypes
import multiprocessing
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

KIND, TIMEOUT_S, MARK = sys.argv[1], float(sys.argv[2]), Path(sys.argv[3])
LAST = 12
FIFO = MARK.with_suffix(f".fifo{os.environ['RANK']}")
GUARD = multiprocessing.Lock()


class Shard(Dataset):
    def __init__(self, length):
        self.length, self.asked = length, 0

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if index == 4 * (LAST + 1) and KIND == "loader" and RANK == 1:
            return self.take_twice(index)
        return torch.full((16,), float(index)), torch.tensor([float(index % 3)])

    def take_twice(self, index):
        with GUARD:
            while os.getppid() != 1 and not GUARD.acquire(timeout=0.2):
                pass
        return index


class Writer:
    """A file on a mount that has gone away."""

    def write(self, data):
        os.open(FIFO, os.O_WRONLY)  # until somebody reads

    def flush(self):
        pass


def count(seen):
    total = torch.tensor([float(seen)])
    dist.all_reduce(total)
    return total


def tell_all(value):
    dist.broadcast(torch.full((8,), value), 0)


def leave_out(model, seen, value):
    tell_all(value)


def swap(model, seen, value):
    tell_all(value)
    count(seen)


def widen(*_):
    dist.all_reduce(torch.zeros(5))


def line_up(*_):
    dist.barrier()


def leave(*_):
    sys.exit(0)


def die(*_):
    os.kill(os.getpid(), 9)


def hold_lock(*_):
    mutex = ctypes.create_string_buffer(128)
    while not ctypes.PyDLL(None).pthread_mutex_lock(mutex):
        pass


def read_shard(*_):
    with open(FIFO, "rb") as stream:
        return stream.read()


def keep(model, *_):
    torch.save(model.state_dict(), Writer())


def in_pairs(first, second):
    dist.all_reduce(torch.ones(3), group=first)
    dist.all_reduce(torch.ones(3), group=second)


def in_pairs_backwards(first, second):
    dist.all_reduce(torch.ones(3), group=second)
    dist.all_reduce(torch.ones(3), group=first)


# What a rank does at the last step in place of `count` and `tell_all`.
ASTRAY = {("skip", 1): leave_out, ("order", 2): swap, ("shape", 0): widen, ("exits", 2): leave, ("dies", 1): die}
ASTRAY |= {("gil", 2): hold_lock, ("branch", 0): line_up, ("read", 1): read_shard, ("save", 0): keep}


def train():
    torch.manual_seed(0)
    first, second = (dist.new_group([0, 1], timeout=timedelta(seconds=TIMEOUT_S)) for _ in range(2))
    net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    batches = LAST + 1 if KIND == "batches" and RANK == 1 else 40
    loader = DataLoader(Shard(4 * batches), 4, num_workers=2 if KIND == "loader" else 0)
    for step, (x, y) in enumerate(loader):
        time.sleep(0.02)
        (model(x) - y).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step == LAST:
            MARK.touch()
        if step == LAST and (KIND, RANK) in ASTRAY:
            ASTRAY[KIND, RANK](net, step, 1.0)
        else:
            count(step)
            tell_all(1.0)
        if step == LAST and KIND == "save":
            line_up()
        if RANK < 2:
            (in_pairs_backwards if step == LAST and KIND == "groups" and RANK else in_pairs)(first, second)
        if step == LAST - 1:
            line_up()
            dist.distributed_c10d._set_pg_timeout(timedelta(seconds=TIMEOUT_S), dist.group.WORLD)


dist.init_process_group("gloo", timeout=timedelta(seconds=600))
RANK = dist.get_rank()
os.mkfifo(FIFO)
train()
line_up()
print("finished", flush=True)
