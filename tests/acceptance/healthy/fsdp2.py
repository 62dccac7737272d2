"""fully_shard on each block and on the model."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
mesh = torch.distributed.init_device_mesh("cpu", (dist.get_world_size(),))
blocks = [nn.Sequential(nn.Linear(384, 768), nn.GELU(), nn.Linear(768, 384)) for _ in range(3)]
model = nn.Sequential(*blocks)
for one in model:
    fully_shard(one, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(50):
    x = torch.randn(64, 384)
    loss = (model(x) - x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
