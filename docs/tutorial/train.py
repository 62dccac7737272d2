"""The training script of the tutorial: it wastes most of its time in three ways, each taken away by an option.

torchrun --nproc-per-node=2 train.py [--workers 4] [--save-aside] [--report-every 25]
"""

from __future__ import annotations

import argparse
import os
import threading
import time
from pathlib import Path
from tempfile import gettempdir

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

STEPS = 60
BATCH = 32
READ_S = 0.002  # a picture, from a network drive
SAVE_S = 0.1  # a checkpoint, to the same
REPORT_S = 0.015  # a request to the server of the metrics
SAVE_EVERY = 4


class Pictures(Dataset[tuple[Tensor, int]]):
    """Random pictures that take a while to come."""

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        time.sleep(READ_S)
        return torch.rand(3, 32, 32), index % 10


class Drive:
    """A file on a slow drive, for `torch.save`."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("wb")

    def write(self, data: bytes) -> int:
        """Write at once what `torch.save` hands over."""
        return self.file.write(data)

    def flush(self) -> None:
        """Wait for the drive."""
        time.sleep(SAVE_S)
        self.file.flush()


def save(state: dict[str, Tensor]) -> None:
    """A checkpoint."""
    torch.save(state, Drive(Path(gettempdir()) / "tutorial.pt"))  # type: ignore[arg-type]


def report(step: int, loss: float) -> None:
    """Tell the server of the metrics."""
    time.sleep(REPORT_S)


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--save-aside", action="store_true")
    parser.add_argument("--report-every", type=int, default=1)
    given = parser.parse_args()
    on_gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if on_gpu else "gloo")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    network = nn.Sequential(
        *(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3, stride=2), nn.ReLU(), nn.Flatten()),
        nn.Linear(32 * 14 * 14, 10),
    )
    model = DistributedDataParallel(network.to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    pictures = Pictures()
    loader = DataLoader(pictures, batch_size=BATCH, sampler=DistributedSampler(pictures), num_workers=given.workers)
    for step, (images, labels) in enumerate(loader):
        loss = nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0 and step % SAVE_EVERY == 0:
            state = {name: value.detach().cpu().clone() for name, value in network.state_dict().items()}
            if given.save_aside:
                threading.Thread(target=save, args=(state,)).start()
            else:
                save(state)
        if dist.get_rank() == 0 and step % given.report_every == 0:
            report(step, loss.item())
        if step == STEPS:
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
