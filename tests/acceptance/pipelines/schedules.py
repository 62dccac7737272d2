"""`schedules.py NAME MICROBATCHES`: a stack of blocks over the ranks, trained by a schedule of torch's pipelining."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import PipelineScheduleSingle, get_schedule_class

STEPS, WIDTH, ROWS = 14, 512, 64


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)
name, microbatches = sys.argv[1], int(sys.argv[2])
kind = get_schedule_class(name)
one = issubclass(kind, PipelineScheduleSingle)
# Numbers of the stages that a rank holds: one; two in a V; two in a loop.
numbers = [rank, 2 * ranks - 1 - rank] if name in ("ZBVZeroBubble", "DualPipeV") else [rank, ranks + rank]
numbers = [rank] if one else numbers
total = len(numbers) * ranks
parts = [nn.Sequential(*(Block() for _ in range(4 // len(numbers)))) for _ in numbers]
stages = [PipelineStage(part, at, total, torch.device("cpu")) for part, at in zip(parts, numbers, strict=True)]
schedule = kind(stages[0] if one else stages, microbatches, loss_fn=nn.functional.mse_loss)
optimizer = torch.optim.SGD([p for part in parts for p in part.parameters()], 0.01)
for _ in range(STEPS):
    x = torch.randn(microbatches * ROWS, WIDTH)
    given = [x] if 0 in numbers else []
    wanted = {"target": torch.zeros_like(x), "losses": []} if total - 1 in numbers else {}
    schedule.step(*given, **wanted)
    optimizer.step()
    optimizer.zero_grad()
dist.barrier()
