"""Small ResNet. FAULT=1, by MODE: loader (augmentation in the main process), pageable (batches not pinned),
prefetch (slow workers behind a prefetching stream)."""

import os

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from turn import FAULT, STEPS, Turn

MODE = os.environ.get("MODE", "loader")
CUDA = torch.cuda.is_available()
SIZE, BATCH = (160, 64) if CUDA else (24, 4)
ROUNDS = {"loader": 12, "prefetch": 40}.get(MODE, 0) if FAULT else 0


class Residual(nn.Module):
    def __init__(self, width, stride):
        super().__init__()
        wide = width * stride
        self.first = nn.Sequential(nn.Conv2d(width, wide, 3, stride, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(wide, wide, 3, 1, 1, bias=False), nn.BatchNorm2d(wide))
        self.short = nn.Conv2d(width, wide, 1, stride)

    def forward(self, image):
        return (self.second(self.first(image)) + self.short(image)).relu()


class Pictures(Dataset):
    def __init__(self):
        self.raw = np.random.randint(0, 255, (256, SIZE, SIZE, 3), dtype=np.uint8)  # noqa: NPY002

    def __len__(self):
        return 100_000

    def __getitem__(self, number):
        picture = self.raw[number % 256]
        for shift in range(ROUNDS):
            picture = np.roll(picture[::-1], shift, 1).copy()
        image = torch.from_numpy(picture.copy()).permute(2, 0, 1)
        return image if MODE == "loader" else image.float() / 255, number % 1000


class Prefetcher:
    def __init__(self, loader):
        self.batches, self.stream = iter(loader), torch.cuda.Stream()
        self.load()

    def load(self):
        with torch.cuda.stream(self.stream):
            self.batch = [each.to("cuda", non_blocking=True) for each in next(self.batches)]

    def __iter__(self):
        while True:
            torch.cuda.current_stream().wait_stream(self.stream)
            batch = self.batch
            for each in batch:
                each.record_stream(torch.cuda.current_stream())
            self.load()
            yield batch


def make_loader():
    if MODE == "loader":
        return DataLoader(Pictures(), BATCH, shuffle=True, drop_last=True)
    if MODE == "prefetch":
        workers = {"num_workers": 3, "pin_memory": CUDA, "persistent_workers": True}
        return DataLoader(Pictures(), BATCH, shuffle=True, drop_last=True, **workers)
    ready = [(torch.rand(BATCH * 4, 3, SIZE, SIZE), torch.randint(0, 1000, (BATCH * 4,))) for _ in range(4)]
    if CUDA and not FAULT:
        ready = [(image.pin_memory(), label.pin_memory()) for image, label in ready]
    return DataLoader(ready * 100, batch_size=None, shuffle=True)


def main():
    loader, turn = make_loader(), Turn()
    stem = [nn.Conv2d(3, 48, 7, 2, 3), nn.BatchNorm2d(48), nn.ReLU(), nn.MaxPool2d(2)]
    body = [Residual(48, 1), Residual(48, 2), Residual(96, 2), Residual(192, 2)]
    model = nn.Sequential(*stem, *body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(384, 1000))
    model = model.to(turn.device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, fused=True)
    criterion = nn.CrossEntropyLoss()
    for image, label in Prefetcher(loader) if MODE == "prefetch" and CUDA else loader:
        if turn.steps == STEPS:
            break
        turn.step()
        image, label = image.to(turn.device, non_blocking=True), label.to(turn.device, non_blocking=True)
        image = image.float().div_(255) if image.dtype == torch.uint8 else image
        with torch.autocast(turn.device, torch.bfloat16):
            loss = criterion(model(image), label)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    turn.end()


if __name__ == "__main__":
    main()
