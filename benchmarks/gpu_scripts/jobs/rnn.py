"""Speech labels with a recurrent net. FAULT=1: a Python loop over GRU cells instead of one fused GRU."""

import torch
from torch import nn
from turn import FAULT, STEPS, Turn


class Speech(nn.Module):
    def __init__(self, hidden=512):
        super().__init__()
        self.enter, self.leave = nn.Linear(80, hidden), nn.Linear(hidden, 1000)
        self.cell, self.recurrent = nn.GRUCell(hidden, hidden), nn.GRU(hidden, hidden, batch_first=True)

    def forward(self, frames):
        states = self.enter(frames).relu()
        if not FAULT:
            return self.leave(self.recurrent(states)[0])
        state, outputs = torch.zeros_like(states[:, 0]), []
        for moment in states.unbind(1):
            state = self.cell(moment, state)
            outputs.append(state)
        return self.leave(torch.stack(outputs, 1))


turn = Turn()
batch, frames = (128, 120) if turn.device == "cuda" else (4, 20)
model = Speech().to(turn.device)
optimizer = torch.optim.Adam(model.parameters(), fused=True)
criterion = nn.CrossEntropyLoss()
bank = [torch.randn(batch, frames, 80) for _ in range(8)]
if turn.device == "cuda":
    bank = [each.pin_memory() for each in bank]
labels = torch.randint(0, 1000, (batch * frames,), device=turn.device)
for _epoch in range(2):
    for number in range(STEPS // 2):
        turn.step()
        heard = bank[number % len(bank)].to(turn.device, non_blocking=True)
        optimizer.zero_grad()
        criterion(model(heard).flatten(0, 1), labels).backward()
        optimizer.step()
turn.end()
