"""Rank 0 logs mean, deviation, norm and quantiles of every parameter and its gradient after each step."""

import json
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def block(width):
    return nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))


class Tower(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.blocks = nn.ModuleList(block(width) for _ in range(depth))

    def forward(self, x):
        for one in self.blocks:
            x = x + one(x)
        return x


def summarise(tensor):
    flat = tensor.detach().flatten()
    quantiles = torch.quantile(flat[:16384], torch.tensor([0.01, 0.5, 0.99]))
    return [flat.mean().item(), flat.std().item(), flat.norm().item(), *quantiles.tolist()]


def log_parameters(model, step, sink):
    row = {"step": step}
    for name, parameter in model.named_parameters():
        row[name] = summarise(parameter)
        row[f"{name}.grad"] = summarise(parameter.grad)
    sink.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(2)
    net = Tower(128, 6)
    wrapped = DDP(net)
    optimizer = torch.optim.AdamW(net.parameters())
    with open(os.devnull, "w") as sink:
        for step in range(50):
            inputs = torch.randn(32, 128)
            wrapped(inputs).square().mean().backward()
            optimizer.step()
            if dist.get_rank() == 0:
                log_parameters(net, step, sink)
            optimizer.zero_grad()
    dist.destroy_process_group()
