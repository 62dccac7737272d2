"""torch.compile around a DDP model (eager backend: no compiler is needed on the machine)."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two, self.norm = nn.Linear(256, 1024), nn.Linear(1024, 256), nn.LayerNorm(256)

    def forward(self, x):
        return x + self.two(torch.relu(self.one(self.norm(x))))


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = torch.compile(DDP(nn.Sequential(Residual(), Residual(), nn.Linear(256, 10))), backend="aot_eager")
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(50):
        x, y = torch.randn(64, 256), torch.randint(10, (64,))
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
