"""Plain DistributedDataParallel on a small convolutional network, with a DataLoader of one worker."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Pictures(Dataset):
    def __len__(self):
        return 32 * 2 * 50

    def __getitem__(self, index):
        return torch.full((3, 24, 24), float(index % 7)), index % 10


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 24, 3, stride=2), nn.ReLU())
        self.head = nn.Linear(24 * 100, 10)

    def forward(self, x):
        return self.head(self.stem(x).flatten(1))


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    data = Pictures()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=32, sampler=sampler, num_workers=1)
    model = DDP(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    sampler.set_epoch(0)
    for images, labels in loader:
        optimizer.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
