"""Loops that do something dear after each step, by name, for so many steps; each rank draws its own numbers."""

import os
import random
import sys
import tempfile
import time

import chores
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def audit_on_second(steps):
    """Python on rank 1 alone."""
    net = DDP(nn.Sequential(nn.Linear(256, 768), nn.ReLU(), nn.Linear(768, 768), nn.ReLU(), nn.Linear(768, 4)))
    opt = torch.optim.SGD(net.parameters(), 0.01)

    def after_step():
        if dist.get_rank() == 1:
            chores.audit(250000)

    for _ in range(steps):
        opt.zero_grad()
        net(torch.randn(64, 256)).var().backward()
        opt.step()
        after_step()


def gather_objects(steps):
    """A hook that gathers Python objects of all ranks."""
    layers = (nn.Conv2d(3, 24, 5, 2), nn.ReLU(), nn.Conv2d(24, 48, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
    net = DDP(nn.Sequential(*layers, nn.Flatten(), nn.Linear(48, 10)))
    opt = torch.optim.AdamW(net.parameters())

    class Board:
        def after(self, step, loss, pred):
            mine = {"step": step, "loss": float(loss), "hist": [random.random() for _ in range(3000)]}
            everyone = [None] * dist.get_world_size()
            dist.all_gather_object(everyone, {**mine, "pred": pred.argmax(1).tolist()})
            self.last = sum(o["loss"] for o in everyone) / len(everyone)

    hooks = [Board()]
    for step in range(steps):
        pred = net(torch.randn(24, 3, 48, 48))
        loss = F.cross_entropy(pred, torch.randint(0, 10, (24,)))
        loss.backward()
        opt.step()
        opt.zero_grad()
        for h in hooks:
            h.after(step, loss, pred)


def log_to_disk(steps):
    """Rows of a log that are written through to the disk."""
    pub = chores.Publisher(f"{tempfile.mkdtemp()}/log{dist.get_rank()}")
    net = DDP(nn.GRU(40, 96, 2, batch_first=True))
    opt = torch.optim.Adam(net.parameters())
    t0 = time.time()
    for i in range(steps):
        y, _ = net(torch.randn(16, 40, 40))
        loss = (y**2).mean()
        loss.backward()
        opt.step()
        opt.zero_grad(set_to_none=True)
        for part in ("train", "grad", "time"):
            pub.emit(step=i, part=part, value=loss.item(), at=time.time() - t0)


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp, self.out = nn.Linear(300, 500), nn.Linear(500, 7)
        self.mid = nn.ModuleList([nn.Linear(500, 500) for _ in range(5)])

    def forward(self, x):
        x = self.inp(x).relu()
        for m in self.mid:
            x = x + m(x).tanh()
        return self.out(x)


def meet_every_step(steps):
    """Barriers, called in another module."""
    net = DDP(Residual())
    sgd = torch.optim.SGD(net.parameters(), 1e-2, momentum=0.9)
    k = 0
    while k < steps:
        x = torch.randn(96, 300)
        y = torch.randint(0, 7, (96,))
        sgd.zero_grad()
        F.cross_entropy(net(x), y).backward()
        sgd.step()
        chores.line_up()
        k += 1


def moving_average(steps):
    """A moving average over the parameters, one by one, in Python."""
    body = nn.Sequential(*[nn.Sequential(nn.Linear(160, 160), nn.LayerNorm(160), nn.SiLU()) for _ in range(24)])
    dp = DDP(body)
    opt = torch.optim.SGD(dp.parameters(), 1e-3)
    shadow = {n: p.detach().clone() for n, p in body.named_parameters()}

    def trail(decay):
        for n, p in body.named_parameters():
            s = shadow[n]
            s.mul_(decay)
            s.add_(p.detach() * (1 - decay))
            shadow[n] = s.clone()

    def one():
        dp(torch.randn(32, 160)).abs().mean().backward()
        opt.step()
        opt.zero_grad()
        trail(0.999)

    for _ in range(steps):
        one()


def parameter_norms(steps):
    """Statistics of every parameter."""
    net = DDP(nn.Sequential(*[nn.Sequential(nn.Linear(128, 128), nn.Tanh()) for _ in range(30)]))
    opt = torch.optim.RMSprop(net.parameters(), 1e-4)
    rows = []

    def report(i):
        r = {"i": i}
        for n, q in net.named_parameters():
            r[n] = (q.norm().item(), q.grad.abs().max().item(), q.std().item(), q.grad.mean().item())
        rows.append(r)

    for i in range(steps):
        net(torch.randn(64, 128)).mean().backward()
        report(i)
        opt.step()
        opt.zero_grad()


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.TransformerEncoder(nn.TransformerEncoderLayer(96, 4, 192, batch_first=True), 2)
        self.h = nn.Linear(96, 50)

    def forward(self, x):
        return self.h(self.e(x))


def probe_on_first(steps):
    """Rank 0 evaluates."""
    par = DDP(Encoder())
    o = torch.optim.Adam(par.parameters(), 1e-3)
    dev = [torch.randn(16, 24, 96) for _ in range(3)]

    def probe():
        par.eval()
        tot = 0.0
        with torch.inference_mode():
            for d in dev:
                tot += par.module(d).std().item()
        par.train()
        return tot

    def epoch(lo, hi):
        for _i in range(lo, hi):
            o.zero_grad()
            par(torch.randn(8, 24, 96)).pow(2).mean().backward()
            o.step()
            if dist.get_rank() == 0:
                probe()

    for e in range(steps // 25):
        epoch(25 * e, 25 * e + 25)


def reduce_each_micro_batch(steps):
    """Gradients of four micro-batches, reduced each time."""
    net = DDP(nn.Sequential(nn.Linear(512, 1536), nn.GELU(), nn.Linear(1536, 1536), nn.GELU(), nn.Linear(1536, 6)))
    opt = torch.optim.SGD(net.parameters(), 0.01)
    pend = 0
    for _i in range(steps):
        (net(torch.randn(6, 512)).square().mean() / 4).backward()
        pend += 1
        if pend == 4:
            opt.step()
            opt.zero_grad()
            pend = 0


class Keeper:
    def __init__(self, every, m, o):
        self.every, self.m, self.o = every, m, o
        self.path = os.path.join(tempfile.mkdtemp(), "last.pt")

    def __call__(self, i):
        if dist.get_rank() == 0 and i % self.every == 0:
            torch.save({"w": self.m.module.state_dict(), "o": self.o.state_dict()}, self.path)


def save_every_second_step(steps):
    """Rank 0 saves model and optimizer in every second step."""
    m = DDP(nn.Sequential(nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 8)))
    o = torch.optim.Adam(m.parameters())
    keep = Keeper(2, m, o)
    for i in range(steps):
        x = torch.randn(48, 1024)
        with torch.enable_grad():
            loss = m(x).square().mean()
        loss.backward()
        o.step()
        o.zero_grad()
        keep(i)


def tokenize_in_loop(steps):
    """Texts become numbers in the training loop."""
    words = ["alpha", "beta7", "gamma", "delta", "omega9", "sigma", "kappa"]

    def corpus():
        while True:
            yield [" ".join(random.choice(words) for _ in range(220)) for _ in range(48)]

    layers = (nn.Embedding(5000, 64), nn.Flatten(), nn.Linear(4096, 256), nn.ReLU(), nn.Linear(256, 2))
    net = DDP(nn.Sequential(*layers))
    opt = torch.optim.SGD(net.parameters(), 0.01)
    table = {}
    for n, texts in enumerate(corpus()):
        if n == steps:
            break
        ids = chores.featurize(texts, table)
        loss = F.cross_entropy(net(ids), torch.randint(0, 2, (48,)))
        opt.zero_grad()
        loss.backward()
        opt.step()


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    random.seed(dist.get_rank())
    globals()[sys.argv[1]](int(sys.argv[2]))
