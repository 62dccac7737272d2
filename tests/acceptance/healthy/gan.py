"""Two DDP models with an optimizer each, trained in turns within one step."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

NOISE = 64


def loss_of(scores, real):
    return nn.functional.binary_cross_entropy_with_logits(scores, torch.full_like(scores, float(real)))


def run():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    g = DDP(nn.Sequential(nn.Linear(NOISE, 512), nn.ReLU(), nn.Linear(512, 784), nn.Tanh()))
    d = DDP(nn.Sequential(nn.Linear(784, 512), nn.LeakyReLU(0.2), nn.Linear(512, 1)), broadcast_buffers=False)
    of_g, of_d = (torch.optim.Adam(net.parameters(), lr=2e-4, betas=(0.5, 0.999)) for net in (g, d))
    for _ in range(50):
        real, noise = torch.randn(64, 784), torch.randn(64, NOISE)
        of_d.zero_grad()
        (loss_of(d(real), 1) + loss_of(d(g(noise).detach()), 0)).backward()
        of_d.step()
        of_g.zero_grad()
        loss_of(d(g(noise)), 1).backward()
        of_g.step()
    dist.destroy_process_group()


run()
