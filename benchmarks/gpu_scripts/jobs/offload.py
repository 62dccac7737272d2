"""Perceptron. FAULT=1: the optimizer lives on the host; gradients go there and parameters come back each step."""

import torch
from torch import nn
from turn import FAULT, STEPS, Turn

turn = Turn()
width, batch = (2048, 4096) if turn.device == "cuda" else (64, 64)
torch.set_float32_matmul_precision("high")
model = nn.Sequential(*[part for _ in range(6) for part in (nn.Linear(width, width), nn.GELU())]).to(turn.device)
kept = [each.detach().cpu().clone() for each in model.parameters()] if FAULT else list(model.parameters())
optimizer = torch.optim.SGD(kept, 0.01, momentum=0.9)
inputs = torch.randn(batch, width, device=turn.device)
for _ in range(STEPS):
    turn.step()
    model.zero_grad()
    model(inputs).square().mean().backward()
    if FAULT:
        for host, parameter in zip(kept, model.parameters(), strict=True):
            host.grad = parameter.grad.cpu()
    optimizer.step()
    if FAULT:
        with torch.no_grad():
            for host, parameter in zip(kept, model.parameters(), strict=True):
                parameter.copy_(host)
turn.end()
