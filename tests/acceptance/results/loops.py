"""One training loop of a shape, and its last parameters in a file: what advice would change shows there.

`python loops.py SHAPE OUT [kept]`; `kept`: gradients are reduced in the last pass before an optimizer step alone,
barriers and gathered values are left out, as the advice says."""

import contextlib
import copy
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import ddprof

SHAPE, OUT, KEPT = sys.argv[1], sys.argv[2], sys.argv[3:] == ["kept"]
STEPS, WIDTH = 16, 384
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)


def made(out=1):
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, out))


def batch(number):
    return torch.randn(8, WIDTH, generator=torch.Generator().manual_seed(1000 * rank + number))


def backward(wrapped, x, is_last=True):
    with wrapped.no_sync() if KEPT and not is_last else contextlib.nullcontext():
        loss = (wrapped(x) - x[:, :1]).square().mean()
        loss.backward()
    return loss.detach()


model = made()
if SHAPE != "func":
    model = DDP(model)
optimizer = torch.optim.SGD(model.parameters(), 0.05)


def plain():
    for number in range(STEPS):
        optimizer.zero_grad()
        backward(model, batch(number))
        optimizer.step()
        if not KEPT:
            dist.barrier()


def accumulated():
    """Four micro-batches for each step, and two for the last."""
    total = 4 * STEPS - 2
    for number in range(total):
        is_last = number % 4 == 3 or number == total - 1
        backward(model, batch(number), is_last)
        if is_last:
            optimizer.step()
            optimizer.zero_grad()


def clipped():
    """Each micro-batch's gradient is made small by itself: sums of ranks are needed each time."""
    for number in range(4 * STEPS):
        backward(model, batch(number), number % 4 == 3)
        nn.utils.clip_grad_norm_(model.parameters(), 0.1 * (number % 4 + 1))
        if number % 4 == 3:
            optimizer.step()
            model.zero_grad()


def lbfgs():
    """Each call of the closure zeroes the gradients: its sum is needed."""
    solver = torch.optim.LBFGS(model.parameters(), lr=0.2, max_iter=4)
    calls = 0

    def closure():
        nonlocal calls
        model.zero_grad()
        calls += 1
        loss = backward(model, batch(0), calls % 4 == 0)
        dist.all_reduce(loss)
        return loss / world

    for _ in range(STEPS):
        solver.step(closure)


def sam():
    """The first pass of two moves the weights by its gradient, by hand, before the second."""
    for number in range(STEPS):
        x = batch(number)
        backward(model, x, is_last=False)
        with torch.no_grad():
            moves = [0.05 * p.grad for p in model.parameters()]
            for p, move in zip(model.parameters(), moves, strict=True):
                p.add_(move)
        model.zero_grad()
        backward(model, x)
        with torch.no_grad():
            for p, move in zip(model.parameters(), moves, strict=True):
                p.sub_(move)
        optimizer.step()
        model.zero_grad()


def gan():
    """Two models; the pass of one leaves gradients in the other, which are zeroed unread."""
    other = DDP(made(WIDTH))
    second = torch.optim.SGD(other.parameters(), 0.05)
    for number in range(STEPS):
        x = batch(number)
        optimizer.zero_grad()
        ((model(x) - 1).square().mean() + model(other(x).detach()).square().mean()).backward()
        optimizer.step()
        second.zero_grad()
        (model(other(x)) - 1).square().mean().backward()
        second.step()


def func():
    """Gradients by torch.func, summed by hand."""
    values = {name: p.detach() for name, p in model.named_parameters()}

    def loss_of(values, x):
        return (torch.func.functional_call(model, values, (x,)) - x[:, :1]).square().mean()

    for number in range(STEPS):
        gradients = torch.func.grad(loss_of)(values, batch(number))
        for name, gradient in gradients.items():
            dist.all_reduce(gradient)
            values[name] = values[name] - 0.05 * gradient / world
        ddprof.step()  # no optimizer steps here
    model.load_state_dict(values)


def ema():
    """A second copy follows the first; its mean over ranks is what is saved."""
    follower = copy.deepcopy(model.module)
    for number in range(STEPS):
        optimizer.zero_grad()
        backward(model, batch(number))
        optimizer.step()
        with torch.no_grad():
            for mine, p in zip(follower.parameters(), model.parameters(), strict=True):
                mine.lerp_(p, 0.1)
    model.module.load_state_dict(follower.state_dict())


def rl():
    """Rollouts of a policy that moves between passes, and two epochs over them: each pass has its own step."""
    for number in range(STEPS // 2):
        with torch.no_grad():
            reward = model(batch(number)).mean()
        if not KEPT:
            dist.all_reduce(reward)
            reward /= world
        for _ in range(2):
            optimizer.zero_grad()
            ((model(batch(number)) - reward).square().mean()).backward()
            optimizer.step()


{f.__name__: f for f in (plain, accumulated, clipped, lbfgs, sam, gan, func, ema, rl)}[SHAPE]()
torch.save({name: value.double() for name, value in model.state_dict().items()}, f"{OUT}.{rank}")
dist.destroy_process_group()
