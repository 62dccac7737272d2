"""Mixture of experts. FAULT=1: each expert's tokens are looked up with nonzero(), which waits for the device."""

import torch
from torch import nn
from turn import FAULT, STEPS, Turn


class Experts(nn.Module):
    def __init__(self, width, experts):
        super().__init__()
        self.gate = nn.Linear(width, experts)
        self.up = nn.Parameter(torch.randn(experts, width, width) * 0.02)
        self.down = nn.Parameter(torch.randn(experts, width, width) * 0.02)

    def forward(self, tokens):
        scores = self.gate(tokens).softmax(-1)
        best, chosen = scores.max(-1)
        if FAULT:
            out = torch.zeros_like(tokens)
            for expert, (up, down) in enumerate(zip(self.up, self.down, strict=True)):
                mine = (chosen == expert).nonzero().squeeze(1)
                if len(mine):
                    out = out.index_add(0, mine, (tokens[mine] @ up).relu() @ down)
            return tokens + out * best[:, None]
        order = chosen.argsort()[: len(tokens) // len(self.up) * len(self.up)]
        grouped = tokens[order].view(len(self.up), -1, tokens.shape[1])
        out = torch.bmm(torch.bmm(grouped, self.up).relu(), self.down).flatten(0, 1)
        return tokens.index_add(0, order, out * best[order][:, None])


turn = Turn()
width, experts, count = (512, 8, 8192) if turn.device == "cuda" else (32, 4, 64)
torch.set_float32_matmul_precision("high")
model = nn.Sequential(*[Experts(width, experts) for _ in range(6)]).to(turn.device)
optimizer = torch.optim.Adam(model.parameters(), 1e-4, fused=True)
tokens = torch.randn(count, width, device=turn.device)
for _ in range(STEPS):
    turn.step()
    loss = model(tokens).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
turn.end()
