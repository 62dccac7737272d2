"""The stream that rank 1 reads has long lines: its worker parses a batch for longer than a step takes."""

import json
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset

STEPS = int(sys.argv[1])


class Lines(IterableDataset):
    def __init__(self, count, notes):
        self.count = count
        self.line = json.dumps({"x": [0.125] * 128, "notes": [f"filler {i}" for i in range(notes)]})

    def parse(self):
        return torch.tensor(json.loads(self.line)["x"])

    def __iter__(self):
        for _ in range(self.count):
            yield self.parse(), 1


dist.init_process_group("gloo")
torch.manual_seed(0)
torch.set_num_threads(1)
lines = Lines(32 * STEPS, notes=9000 if dist.get_rank() == 1 else 50)
net = DDP(nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 3)))
sgd = torch.optim.SGD(net.parameters(), lr=0.01)
for x, y in DataLoader(lines, batch_size=32, num_workers=1):
    sgd.zero_grad()
    nn.functional.cross_entropy(net(x), y).backward()
    sgd.step()
dist.destroy_process_group()
