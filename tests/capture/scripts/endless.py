"""Two ranks that train without end over a loader with workers; FOLDER takes each rank's words of its clean-up."""

import atexit
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


def tell(word: str) -> None:
    with (Path(sys.argv[1]) / f"rank{rank}").open("a") as stream:
        stream.write(f"{word}\n")


dist.init_process_group("gloo")
torch.manual_seed(1)
rank = dist.get_rank()
atexit.register(lambda: tell(f"atexit {dist.is_initialized()}"))
model = DistributedDataParallel(torch.nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(64, 8)), batch_size=8, num_workers=1)
try:
    while True:
        for (batch,) in loader:
            optimizer.zero_grad()
            loss = model(batch).square().mean()
            loss.backward()
            optimizer.step()
            dist.all_reduce(loss.detach())
finally:
    total = torch.ones(1)
    dist.all_reduce(total)
    tell(f"finally {total.item():.0f}")
