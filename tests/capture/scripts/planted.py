"""DDP ranks and a slow `--place`: "evaluation", "pause" (`--rank` sleeps), "python" (counts), "lock" (workers wait)."""

import argparse
import multiprocessing
import sys
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

parser = argparse.ArgumentParser()
parser.add_argument("--place", choices=("evaluation", "pause", "python", "lock"), default="evaluation")
parser.add_argument("--steps", type=int, default=14)
parser.add_argument("--rank", type=int, default=0)
options = parser.parse_args()


class Samples(Dataset[Tensor]):
    """Random rows; under "lock" one worker at a time."""

    def __init__(self, lock: Any) -> None:
        self.lock = lock

    def __len__(self) -> int:
        return 8 * options.steps * dist.get_world_size()

    def __getitem__(self, index: int) -> Tensor:
        if self.lock is None:
            return torch.full((16,), float(index))
        with self.lock:  # PLANTED lock
            time.sleep(0.01)
            return torch.full((16,), float(index))


def evaluate() -> None:
    time.sleep(0.05)  # PLANTED evaluation


def count() -> int:
    total = 0
    for number in range(300_000):
        total += number % 7  # PLANTED python
    return total


torch.set_num_threads(1)
torch.manual_seed(0)
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(16, 16))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
locked = options.place == "lock"
data = Samples(multiprocessing.Lock() if locked else None)
for x in DataLoader(data, batch_size=8, sampler=DistributedSampler(data), num_workers=2 if locked else 0):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
    if dist.get_rank() == options.rank and not locked:
        {"evaluation": evaluate, "pause": lambda: time.sleep(0.1), "python": count}[options.place]()
dist.destroy_process_group()
sys.exit(0)
