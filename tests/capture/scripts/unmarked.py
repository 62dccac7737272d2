"""Loops of STEPS iterations that no torch optimizer ends: `unmarked.py KIND...`, each kind in a fork of its own."""

import atexit
import gc
import os
import sys

import torch
import torch._dynamo
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import ddprof

STEPS = 24


def _run(kind: str) -> None:
    torch.set_num_threads(1)
    model, data = type(kind, (nn.Sequential,), {})(nn.Linear(8, 8)), TensorDataset(torch.randn(STEPS * 4, 8))
    loss_of = nn.MSELoss()

    def descend() -> None:
        with torch.no_grad():
            for parameter in model.parameters():
                assert parameter.grad is not None
                parameter -= 0.01 * parameter.grad
                parameter.grad = None

    if kind in ("by_hand", "by_hand_no_loader"):
        for (x,) in DataLoader(data, batch_size=4) if kind == "by_hand" else torch.randn(STEPS, 1, 4, 8):
            loss_of(model(x), x).backward()
            descend()
    elif kind == "functional":
        weights = dict(model.named_parameters())

        def loss(weights: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
            return loss_of(torch.func.functional_call(model, weights, (x,)), x)

        for (x,) in DataLoader(data, batch_size=4):
            grads = torch.func.grad(loss)(weights, x)
            weights = {name: weights[name].detach() - 0.01 * grad for name, grad in grads.items()}
    elif kind == "inference":
        model.eval()
        with torch.inference_mode():
            for (x,) in DataLoader(data, batch_size=4):
                model(model(x))
    elif kind == "embedding":
        with torch.no_grad():
            for _ in range(STEPS):
                model(torch.randn(4, 8))
    elif kind == "lbfgs":
        optimizer, x = torch.optim.LBFGS(model.parameters(), max_iter=3), torch.randn(4, 8)

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss: torch.Tensor = loss_of(model(x), torch.ones(4, 8))
            loss.backward()
            return loss

        for _ in range(STEPS):
            optimizer.step(closure)
    else:  # the script marks its steps itself; two optimizer steps and three batches in each
        sgd = torch.optim.SGD(model.parameters(), lr=0.01)
        batches = iter(DataLoader(TensorDataset(torch.randn(STEPS * 12, 8)), batch_size=4))
        for _ in range(STEPS):
            for _ in range(2):
                (x,) = next(batches)
                loss_of(model(x), x).backward()
                sgd.step()
            with ddprof.annotate("moving average"):
                next(batches)
            ddprof.step()


atexit.register(gc.freeze)  # half a second of a CPU per process: cyclic garbage among what torch imported
children = []
for kind in sys.argv[1:]:
    child = os.fork()
    if not child:
        _run(kind)
        sys.exit(0)
    children.append(child)
sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
