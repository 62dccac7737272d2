"""Detector with queries. FAULT=1: boxes are matched image by image, in Python on the host."""

import torch
from torch import nn
from turn import FAULT, STEPS, Turn


class Detector(nn.Module):
    def __init__(self, queries=100, width=64):
        super().__init__()
        sizes = [(3, width, 2), (width, 2 * width, 2), (2 * width, 4 * width, 2), (4 * width, 4 * width, 1)]
        convolutions = [part for i, o, stride in sizes for part in (nn.Conv2d(i, o, 3, stride, 1), nn.ReLU())]
        self.body = nn.Sequential(*convolutions, nn.AdaptiveAvgPool2d(16))
        self.queries = nn.Parameter(torch.randn(queries, 4 * width))
        layer = nn.TransformerDecoderLayer(4 * width, 8, 1024, batch_first=True, dropout=0)
        self.decoder, self.box = nn.TransformerDecoder(layer, 3), nn.Linear(4 * width, 4)

    def forward(self, images):
        features = self.body(images).flatten(2).transpose(1, 2)
        return self.box(self.decoder(self.queries.expand(len(images), -1, -1), features)).sigmoid()


def greedy(cost):
    taken = []
    for row in cost:
        taken.append(min((value, column) for column, value in enumerate(row) if column not in taken)[1])
    return taken


turn = Turn()
device = turn.device
batch, size, count = (32, 256, 24) if device == "cuda" else (2, 64, 5)
model = Detector().to(device)
optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
images = torch.randn(batch, 3, size, size, device=device)
boxes = torch.rand(batch, count, 4, device=device)
for _ in range(STEPS):
    turn.step()
    with torch.autocast(device, torch.bfloat16):
        predicted = model(images)
    predicted = predicted.float()
    if FAULT:
        loss = 0
        for one, truth in zip(predicted, boxes, strict=True):
            columns = greedy(torch.cdist(truth, one.detach(), 1).cpu().tolist())
            loss = loss + (one[torch.tensor(columns, device=device)] - truth).abs().mean()
    else:
        nearest = torch.cdist(boxes, predicted.detach(), 1).argmin(-1)
        loss = (predicted.gather(1, nearest[..., None].expand(-1, -1, 4)) - boxes).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
turn.end()
