"""A communication hook of the script looks at single gradients in Python before it sends a bucket."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

STEPS = int(sys.argv[1])


def count_large(state, bucket):
    values = bucket.buffer()
    for value in values[:20000].tolist():
        state["large"] += abs(value) > 1e-3
    state["sent"] += values.numel()
    sent = dist.all_reduce(values, async_op=True).get_future()
    return sent.then(lambda done: done.value()[0] / dist.get_world_size())


dist.init_process_group("gloo")
torch.manual_seed(0)
torch.set_num_threads(1)
model = DDP(nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)))
model.register_comm_hook({"large": 0, "sent": 0}, count_large)
sgd = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(STEPS):
    x, y = torch.randn(64, 256), torch.randint(10, (64,))
    sgd.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    sgd.step()
dist.destroy_process_group()
