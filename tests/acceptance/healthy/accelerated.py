"""Accelerate's own loop, with gradient clipping and metrics gathered at the end only."""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator(cpu=True)
torch.manual_seed(0)
data = TensorDataset(torch.randn(2 * 64 * 45, 160), torch.randn(2 * 64 * 45, 3))
model = nn.Sequential(nn.Linear(160, 700), nn.ReLU(), nn.Linear(700, 700), nn.ReLU(), nn.Linear(700, 3))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loader = DataLoader(data, batch_size=64, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
total = torch.zeros(())
for x, y in loader:
    loss = nn.functional.mse_loss(model(x), y)
    accelerator.backward(loss)
    accelerator.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    total += loss.detach()
accelerator.print("loss", accelerator.reduce(total, "mean").item() / len(loader))
accelerator.end_training()
