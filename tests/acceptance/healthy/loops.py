"""Loops of torch alone in which nothing is wrong, by name."""

import contextlib
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard
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


def ddp():
    """A small convolutional network, with a DataLoader of one worker."""
    data = Pictures()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=32, sampler=sampler, num_workers=1)
    model = DDP(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    sampler.set_epoch(0)
    for images, labels in loader:
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()


def fsdp2():
    """fully_shard on each block and on the model."""
    mesh = torch.distributed.init_device_mesh("cpu", (dist.get_world_size(),))
    blocks = [nn.Sequential(nn.Linear(384, 768), nn.GELU(), nn.Linear(768, 384)) for _ in range(3)]
    model = nn.Sequential(*blocks)
    for one in model:
        fully_shard(one, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(50):
        x = torch.randn(64, 384)
        (model(x) - x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def loss_of(scores, real):
    return F.binary_cross_entropy_with_logits(scores, torch.full_like(scores, float(real)))


def gan(width=64):
    """Two DDP models with an optimizer each, trained in turns within one step."""
    g = DDP(nn.Sequential(nn.Linear(width, 512), nn.ReLU(), nn.Linear(512, 784), nn.Tanh()))
    d = DDP(nn.Sequential(nn.Linear(784, 512), nn.LeakyReLU(0.2), nn.Linear(512, 1)), broadcast_buffers=False)
    of_g, of_d = (torch.optim.Adam(net.parameters(), lr=2e-4, betas=(0.5, 0.999)) for net in (g, d))
    for _ in range(50):
        real, noise = torch.randn(64, 784), torch.randn(64, width)
        of_d.zero_grad()
        (loss_of(d(real), 1) + loss_of(d(g(noise).detach()), 0)).backward()
        of_d.step()
        of_g.zero_grad()
        loss_of(d(g(noise)), 1).backward()
        of_g.step()


def accumulation(micro=4):
    """Four micro-batches per optimizer step, the first three under no_sync."""
    model = DDP(nn.Sequential(nn.Linear(200, 600), nn.SiLU(), nn.Linear(600, 600), nn.SiLU(), nn.Linear(600, 200)))
    optimizer = torch.optim.AdamW(model.parameters())
    for index in range(45 * micro):
        last = index % micro == micro - 1
        x = torch.randn(32, 200)
        with contextlib.nullcontext() if last else model.no_sync():
            (F.l1_loss(model(x), x) / micro).backward()
        if last:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()


def mlp(width, depth):
    layers = [nn.Linear(128, width), nn.ReLU()]
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, 20))


def distillation():
    """A large frozen teacher, a small student under DDP."""
    teacher = mlp(640, 3).eval().requires_grad_(False)
    student = DDP(mlp(192, 2))
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    for _ in range(50):
        batch = torch.randn(80, 128)
        with torch.no_grad():
            wanted = F.softmax(teacher(batch) / 2.0, dim=-1)
        loss = F.kl_div(F.log_softmax(student(batch) / 2.0, dim=-1), wanted, reduction="batchmean")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def lbfgs():
    """The closure of the optimizer runs forward and backward several times per step."""
    model = DDP(nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 1)))
    solver = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4, history_size=5)
    torch.manual_seed(dist.get_rank())
    inputs = torch.randn(512, 64)
    targets = inputs[:, :1] * inputs[:, 1:2]

    def closure():
        solver.zero_grad()
        loss = F.mse_loss(model(inputs), targets)
        loss.backward()
        mean = loss.detach().clone()
        dist.all_reduce(mean)  # both ranks must take the same branch of the line search
        return mean / dist.get_world_size()

    for _ in range(40):
        solver.step(closure)


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two, self.norm = nn.Linear(256, 1024), nn.Linear(1024, 256), nn.LayerNorm(256)

    def forward(self, x):
        return x + self.two(torch.relu(self.one(self.norm(x))))


def compiled():
    """torch.compile around a DDP model (eager backend: no compiler is needed on the machine)."""
    model = torch.compile(DDP(nn.Sequential(Residual(), Residual(), nn.Linear(256, 10))), backend="aot_eager")
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(50):
        x, y = torch.randn(64, 256), torch.randint(10, (64,))
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()


def average_gradients(model):
    grads = [p.grad for p in model.parameters()]
    flat = nn.utils.parameters_to_vector(grads)
    dist.all_reduce(flat)
    nn.utils.vector_to_parameters(flat / dist.get_world_size(), grads)


def plain_all_reduce():
    """No wrapper: one flat all-reduce of all gradients after each backward pass."""
    model = nn.Sequential(nn.Linear(400, 800), nn.ReLU(), nn.Linear(800, 800), nn.ReLU(), nn.Linear(800, 400))
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-4)
    torch.manual_seed(dist.get_rank())
    for _ in range(50):
        x = torch.randn(64, 400)
        F.mse_loss(model(x), x).backward()
        average_gradients(model)
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    globals()[sys.argv[1]]()
    dist.destroy_process_group()
