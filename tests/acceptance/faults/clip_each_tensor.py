"""Gradients are clipped by hand, tensor by tensor, with a histogram of each."""

import sys

import torch
import torch.distributed as dist
from torch import nn


class Clipper:
    def __init__(self, most):
        self.most = most

    def limit_each(self, model):
        for weights in model.parameters():
            norm = weights.grad.pow(2).sum().sqrt().item()
            if norm > self.most:
                weights.grad.mul_(self.most / (norm + 1e-6))
            [float(v) for v in torch.histc(weights.grad.float(), 64)]


def train(steps):
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    layers = [layer for _ in range(40) for layer in (nn.Linear(96, 96), nn.ReLU())]
    net = nn.parallel.DistributedDataParallel(nn.Sequential(*layers, nn.Linear(96, 3)))
    opt, clipper = torch.optim.SGD(net.parameters(), 1e-3), Clipper(0.1)
    for _ in range(steps):
        opt.zero_grad()
        nn.functional.cross_entropy(net(torch.randn(16, 96)), torch.randint(0, 3, (16,))).backward()
        clipper.limit_each(net)
        opt.step()
    dist.destroy_process_group()


train(int(sys.argv[1]))
