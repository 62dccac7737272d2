"""Loops in which one rank has more to do, or other things, by name, with a number or a word."""

import json
import os
import random
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def evaluate(net, held_out):
    net.eval()
    right = 0
    with torch.no_grad():
        for x, y in held_out:
            right += (net(x).argmax(1) == y).sum().item()
    net.train()
    return right / 2048


def evaluate_on_first(every, steps=60):
    """Rank 0 evaluates in a function of its own every N steps while rank 1 waits in the next all-reduce."""
    train = TensorDataset(torch.randn(128 * steps, 256), torch.randint(10, (128 * steps,)))
    sampler = DistributedSampler(train)
    loader = DataLoader(train, batch_size=64, sampler=sampler)
    held_out = DataLoader(TensorDataset(torch.randn(2048, 256), torch.randint(10, (2048,))), batch_size=256)
    net = DDP(nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)))
    sgd = torch.optim.SGD(net.parameters(), lr=0.01)
    sampler.set_epoch(0)
    for step, (x, y) in enumerate(loader):
        sgd.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        sgd.step()
        if dist.get_rank() == 0 and step % every == every - 1:
            evaluate(net.module, held_out)


class Mlp(nn.Module):
    def __init__(self, width=700):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(32, width), nn.GELU(), nn.Linear(width, width), nn.GELU())
        self.memory = nn.Embedding(6000, width)
        self.head = nn.Linear(width, 32)

    def forward(self, x, ids):
        return self.head(self.body(x) + self.memory(ids))


def keep(folder, step, model, optimizer):
    path = os.path.join(folder, f"step{step % 20}.pt")
    torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)


def save_on_first(meet):
    """Rank 0 saves every ten steps; `barrier`: the others wait for it at once, else in the next step."""
    model = Mlp()
    model.memory.weight.requires_grad_(False)
    ddp = DDP(model)
    adam = torch.optim.Adam(filter(lambda p: p.requires_grad, model.parameters()), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        for step in range(60):
            x, ids = torch.randn(48, 32), torch.randint(6000, (48,))
            loss = (ddp(x, ids) - x).pow(2).mean()
            adam.zero_grad()
            loss.backward()
            adam.step()
            if step % 10 == 9:
                if dist.get_rank() == 0:
                    keep(folder, step, model, adam)
                if meet == "barrier":
                    dist.barrier()


class Tower(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
            for _ in range(depth)
        )

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


def statistics_on_first(steps):
    """Rank 0 logs mean, deviation, norm and quantiles of every parameter and its gradient after each step."""
    net = Tower(128, 6)
    wrapped = DDP(net)
    optimizer = torch.optim.AdamW(net.parameters())
    with open(os.devnull, "w") as sink:
        for step in range(steps):
            wrapped(torch.randn(32, 128)).square().mean().backward()
            optimizer.step()
            if dist.get_rank() == 0:
                log_parameters(net, step, sink)
            optimizer.zero_grad()


def pulse_on_second(steps):
    """Sharded parameters; rank 1 alone waits a little after each step."""
    mesh = init_device_mesh("cpu", (2,))
    blocks = nn.Sequential(*[nn.Sequential(nn.Linear(256, 256), nn.GELU()) for _ in range(4)])
    for block in blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(blocks, mesh=mesh)
    opt = torch.optim.AdamW(blocks.parameters())

    def pulse():
        time.sleep(0.03)

    for _ in range(steps):
        opt.zero_grad()
        blocks(torch.randn(32, 256)).square().mean().backward()
        opt.step()
        if dist.get_rank() == 1:
            pulse()


def uneven_shards():
    """Rank 1's shard has batches twice the size of rank 0's; Join lets ranks end when their data does."""
    size = 512 if dist.get_rank() == 0 else 1024
    shard = TensorDataset(torch.randn(size * 40, 300), torch.randn(size * 40, 8))
    model = DDP(nn.Sequential(nn.Linear(300, 640), nn.Tanh(), nn.Linear(640, 640), nn.Tanh(), nn.Linear(640, 8)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    with Join([model]):
        for features, targets in DataLoader(shard, batch_size=size, shuffle=True):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(features), targets).backward()
            optimizer.step()


class LanguageModel(nn.Module):
    def __init__(self, vocabulary):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, 96)
        layer = nn.TransformerEncoderLayer(96, 4, 192, batch_first=True, dropout=0.0)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(96, vocabulary)

    def forward(self, tokens):
        return self.head(self.encoder(self.embed(tokens)))


def longer_sequences(steps):
    """A small language model without a DataLoader: rank 0's documents are more than twice as long as rank 1's."""

    def documents(rank, count):
        chance = random.Random(rank)
        for _ in range(count):
            length = chance.randint(110, 130) if rank == 0 else chance.randint(44, 54)
            yield torch.randint(500, (8, length))

    model = DDP(LanguageModel(500))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for tokens in documents(dist.get_rank(), steps):
        logits = model(tokens[:, :-1])
        nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()


def embed_long_documents(steps):
    """No optimizer at all: a corpus is embedded and gathered, and rank 0 has the long documents."""
    length = 160 if dist.get_rank() == 0 else 60
    table = nn.Embedding(1000, 64)
    encoder = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True).eval()
    with torch.inference_mode():
        for _ in range(steps):
            vectors = encoder(table(torch.randint(0, 1000, (16, length)))).mean(1)
            every = [torch.empty_like(vectors) for _ in range(dist.get_world_size())]
            dist.all_gather(every, vectors)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    globals()[sys.argv[1]](*(int(word) if word.isdigit() else word for word in sys.argv[2:]))
    dist.destroy_process_group()
