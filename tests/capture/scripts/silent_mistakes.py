"""A job that trains without an error and makes every silent mistake that one model can make."""

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

STEPS = 16


class Net(nn.Module):
    """A normalised layer, a head, and a layer that nothing calls."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU())
        self.head = nn.Linear(16, 4)
        self.left_over = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.body(x))
        return out


dist.init_process_group("gloo")
torch.manual_seed(0)
data = TensorDataset(torch.randn(32, 8), torch.randint(0, 4, (32,)))
sampler: DistributedSampler[tuple[Tensor, ...]] = DistributedSampler(data)
loader = DataLoader(data, batch_size=4, sampler=sampler)
model = DistributedDataParallel(Net(), broadcast_buffers=False, find_unused_parameters=True)  # wrapped
if dist.get_rank() == 0:
    nn.init.ones_(model.module.head.weight)
optimizer = torch.optim.AdamW(model.parameters())  # made
for _ in range(STEPS // len(loader)):
    for x, y in loader:  # iterated
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
# The reduction of unused parameters is not waited for. Where it holds the group last, torch stands still for
# ever: the group joins, under the interpreter's lock, a thread that waits for that lock.
del model
dist.barrier()
dist.destroy_process_group()
