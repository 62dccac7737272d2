"""One process, two DataLoader workers started the given way (fork, spawn or forkserver), one millisecond per sample."""

import os
import sys
import time

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset


class Slow(Dataset[Tensor]):
    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Tensor:
        time.sleep(0.001)
        return torch.full((4,), float(index))


def main() -> None:
    torch.set_num_threads(1)
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    torch.distributed.init_process_group("gloo", rank=0, world_size=1, store=torch.distributed.HashStore())
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for batch in DataLoader(Slow(), batch_size=4, num_workers=2, multiprocessing_context=sys.argv[1]):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
