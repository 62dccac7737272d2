"""Workers that are made again for each short epoch."""

import random
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

STEPS = int(sys.argv[1])
torch.set_num_threads(1)
dist.init_process_group("gloo")
R, W = dist.get_rank(), dist.get_world_size()
torch.manual_seed(R)
random.seed(R)


class Small(torch.utils.data.Dataset):
    def __len__(s):
        return 240

    def __getitem__(s, i):
        return torch.randn(64), i % 3


ds = Small()
smp = torch.utils.data.DistributedSampler(ds)
dl = torch.utils.data.DataLoader(ds, 12, sampler=smp, num_workers=2)
net = nn.parallel.DistributedDataParallel(
    nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 3))
)
opt = torch.optim.Adam(net.parameters())
for ep in range(STEPS // 10):
    smp.set_epoch(ep)
    for x, y in dl:
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        opt.step()
