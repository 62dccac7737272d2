"""U-Net over batches of a loader. FAULT=1: the metric of each batch reads every class with .item()."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from turn import FAULT, STEPS, Turn

CLASSES = 19


def block(before, after):
    twice = [(before, after), (after, after)]
    parts = [(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(inplace=True)) for i, o in twice]
    return nn.Sequential(*[part for three in parts for part in three])


class UNet(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.down = nn.ModuleList([block(3, width), block(width, 2 * width), block(2 * width, 4 * width)])
        self.up = nn.ModuleList([block(6 * width, 2 * width), block(3 * width, width)])
        self.out = nn.Conv2d(width, CLASSES, 1)

    def forward(self, image):
        fine = self.down[0](image)
        middle = self.down[1](F.max_pool2d(fine, 2))
        coarse = self.down[2](F.max_pool2d(middle, 2))
        middle = self.up[0](torch.cat([middle, F.interpolate(coarse, scale_factor=2)], 1))
        return self.out(self.up[1](torch.cat([fine, F.interpolate(middle, scale_factor=2)], 1)))


def read_each(predicted, truth):
    scores = []
    for label in range(CLASSES):
        both = ((predicted == label) & (truth == label)).sum().item()
        either = ((predicted == label) | (truth == label)).sum().item()
        scores.append(both / max(either, 1))
    return sum(scores) / CLASSES


def on_device(predicted, truth):
    pairs = torch.bincount(truth.flatten() * CLASSES + predicted.flatten(), minlength=CLASSES**2).view(CLASSES, -1)
    return (pairs.diag() / (pairs.sum(0) + pairs.sum(1) - pairs.diag()).clamp(min=1)).mean()


turn = Turn()
size, batch = (256, 16) if turn.device == "cuda" else (32, 2)
pictures = TensorDataset(torch.randn(512, 3, size, size), torch.randint(0, CLASSES, (512, size, size)))
loader = DataLoader(pictures, batch, shuffle=True, num_workers=4, pin_memory=True, persistent_workers=True)
model = UNet().to(turn.device)
optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
overlap = torch.zeros((), device=turn.device)
while turn.steps < STEPS:
    for image, truth in loader:
        if turn.steps == STEPS:
            break
        turn.step()
        image, truth = image.to(turn.device, non_blocking=True), truth.to(turn.device, non_blocking=True)
        out = model(image)
        optimizer.zero_grad()
        F.cross_entropy(out, truth).backward()
        optimizer.step()
        overlap += (read_each if FAULT else on_device)(out.argmax(1), truth)
turn.end()
