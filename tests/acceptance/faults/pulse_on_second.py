"""Sharded parameters; rank 1 alone waits a little after each step."""

import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.set_num_threads(1)
mesh = init_device_mesh("cpu", (2,))
blocks = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU()) for _ in range(4)])
for block in blocks:
    fully_shard(block, mesh=mesh)
fully_shard(blocks, mesh=mesh)
opt = torch.optim.AdamW(blocks.parameters())


def pulse():
    time.sleep(0.03)


for _ in range(int(sys.argv[1])):
    opt.zero_grad()
    blocks(torch.randn(32, 256)).square().mean().backward()
    opt.step()
    if dist.get_rank() == 1:
        pulse()
dist.destroy_process_group()
