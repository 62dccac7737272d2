"""Loops whose loader is the fault, by name, for so many steps."""

import json
import multiprocessing as mp
import os
import sqlite3
import sys
import tempfile
import time
from itertools import islice

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset


class Rows(Dataset):
    def __init__(self, read, count, classes):
        self.read_row, self.count, self.classes = read, count, classes

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        return self.read_row(i), i % self.classes


def train(net, lr, batches):
    net = DDP(net)
    opt = torch.optim.SGD(net.parameters(), lr)
    for x, y in batches:
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        opt.step()


def lock_of_workers(steps):
    """Workers that take turns at a lock."""
    gate = mp.Lock()

    def read(i):
        with gate:
            time.sleep(0.004)
        return torch.full((200,), float(i % 3))

    dl = DataLoader(Rows(read, 10**6, 5), batch_size=16, num_workers=3)
    train(nn.Sequential(nn.Linear(200, 400), nn.ReLU(), nn.Linear(400, 5)), 0.01, islice(dl, steps))
    os._exit(0)


def long_lines_in_stream(steps):
    """The stream that rank 1 reads has long lines: its worker parses a batch for longer than a step takes."""

    class Lines(IterableDataset):
        def __init__(self, count, notes):
            self.count = count
            self.line = json.dumps({"x": [0.125] * 128, "notes": [f"filler {i}" for i in range(notes)]})

        def parse(self):
            return torch.tensor(json.loads(self.line)["x"])

        def __iter__(self):
            for _ in range(self.count):
                yield self.parse(), 1

    lines = Lines(32 * steps, notes=9000 if dist.get_rank() == 1 else 50)
    net = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 3))
    train(net, 0.01, DataLoader(lines, batch_size=32, num_workers=1))


def one_writer_database(steps):
    """Each read of the workers counts itself in a database, in a transaction that lets nobody else in."""
    file = os.path.join(tempfile.gettempdir(), f"features{os.environ['MASTER_PORT']}.db")

    def fetch_row(i):
        connection = sqlite3.connect(file, timeout=60)
        connection.execute("BEGIN EXCLUSIVE")
        connection.execute("UPDATE reads SET n = n + 1")
        time.sleep(0.004)
        connection.commit()
        connection.close()
        return torch.full((64,), float(i))

    if dist.get_rank() == 0:
        made = sqlite3.connect(file)
        made.execute("CREATE TABLE reads(n INT)")
        made.commit()
        made.close()
    dist.barrier()
    rows = Rows(fetch_row, 4000, 4)
    train(nn.Linear(64, 4), 0.1, islice(DataLoader(rows, 8, sampler=DistributedSampler(rows), num_workers=2), steps))
    dist.barrier()
    if dist.get_rank() == 0:
        os.remove(file)


def slow_mount(steps):
    """The workers of rank 0 read from a slow mount."""
    each_s = 0.009 if dist.get_rank() == 0 else 0.0005

    def read_tile(i):
        time.sleep(each_s)
        return torch.full((128,), float(i))

    tiles = Rows(read_tile, 8000, 3)
    loader = DataLoader(tiles, 16, sampler=DistributedSampler(tiles), num_workers=2)
    train(nn.Linear(128, 3), 0.1, islice(loader, steps))


def workers_each_epoch(steps):
    """Workers that are made again for each short epoch."""
    ds = Rows(lambda _: torch.randn(64), 240, 3)
    smp = DistributedSampler(ds)
    dl = DataLoader(ds, 12, sampler=smp, num_workers=2)

    net = DDP(nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 3)))
    opt = torch.optim.Adam(net.parameters())
    for ep in range(steps // 10):
        smp.set_epoch(ep)
        for x, y in dl:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    globals()[sys.argv[1]](int(sys.argv[2]))
    dist.destroy_process_group()
