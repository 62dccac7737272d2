"""Each read of the workers counts itself in a database, in a transaction that lets nobody else in."""

import os
import sqlite3
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, DistributedSampler

FILE = os.path.join(tempfile.gettempdir(), f"features{os.environ['MASTER_PORT']}.db")


class Features(Dataset):
    def __len__(self):
        return 4000

    def fetch_row(self, i):
        connection = sqlite3.connect(FILE, timeout=60)
        connection.execute("BEGIN EXCLUSIVE")
        connection.execute("UPDATE reads SET n = n + 1")
        time.sleep(0.004)
        connection.commit()
        connection.close()
        return torch.full((64,), float(i))

    def __getitem__(self, i):
        return self.fetch_row(i), i % 4


dist.init_process_group("gloo")
if dist.get_rank() == 0:
    made = sqlite3.connect(FILE)
    made.execute("CREATE TABLE reads(n INT)")
    made.commit()
    made.close()
dist.barrier()
rows = Features()
batches = iter(DataLoader(rows, batch_size=8, sampler=DistributedSampler(rows), num_workers=2))
net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 4))
opt = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(int(sys.argv[1])):
    x, y = next(batches)
    opt.zero_grad()
    torch.nn.functional.cross_entropy(net(x), y).backward()
    opt.step()
dist.barrier()
if dist.get_rank() == 0:
    os.remove(FILE)
dist.destroy_process_group()
