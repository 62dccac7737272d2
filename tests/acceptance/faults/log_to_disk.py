"""Rows of a log that are written through to the disk."""

import random
import sys
import tempfile
import time

import chores
import torch
import torch.distributed as dist
import torch.nn as nn

STEPS = int(sys.argv[1])
torch.set_num_threads(1)
dist.init_process_group("gloo")
R, W = dist.get_rank(), dist.get_world_size()
torch.manual_seed(R)
random.seed(R)
TMP = tempfile.mkdtemp()
pub = chores.Publisher(f"{TMP}/log{R}")
net = nn.parallel.DistributedDataParallel(nn.GRU(40, 96, 2, batch_first=True))
opt = torch.optim.Adam(net.parameters())
t0 = time.time()
for i in range(STEPS):
    y, _ = net(torch.randn(16, 40, 40))
    loss = (y**2).mean()
    loss.backward()
    opt.step()
    opt.zero_grad(set_to_none=True)
    for part in ("train", "grad", "time"):
        pub.emit(step=i, part=part, value=loss.item(), at=time.time() - t0)
