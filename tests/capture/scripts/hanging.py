"""A DDP loop of which one rank goes astray in step 8, however late it starts: `hanging.py FAULT [RANK] [TIMEOUT_S]`."""

import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

FAULT = sys.argv[1]
BAD = int(sys.argv[2]) if len(sys.argv) > 2 else 1
TIMEOUT_S = float(sys.argv[3]) if len(sys.argv) > 3 else 120
STEP = 8
PATIENCE_S = 600  # until step 8


def prepare() -> None:
    """Never returns."""
    while True:
        time.sleep(0.1)


def evaluate(model: torch.nn.Module) -> None:
    """Takes longer than the others wait."""
    until = time.monotonic() + (4 * TIMEOUT_S if FAULT == "evaluation" else 4)
    while time.monotonic() < until:
        with torch.no_grad():
            model(torch.randn(4, 8))
        time.sleep(0.01)


def synchronise(step: int, astray: bool) -> None:
    """Exchanges of a step beside its gradients."""
    if not (astray and FAULT == "skipped"):
        dist.all_reduce(torch.ones(4))
    dist.all_reduce(torch.ones(1))
    dist.broadcast(torch.ones(1), 0)
    dist.barrier()


def message(step: int) -> None:
    """From rank 0 to rank 1, as between the stages of a pipeline."""
    if dist.get_rank() == 0 and not (step == STEP and FAULT == "message"):
        dist.send(torch.ones(3), 1)
    if dist.get_rank() == 1:
        dist.recv(torch.ones(3), 0)


def await_key() -> None:
    """A key of the store that rank BAD was to set."""
    store = dist.distributed_c10d._get_default_store()
    if dist.get_rank() == BAD:
        prepare()
    store.wait(["ready"], timedelta(seconds=min(TIMEOUT_S, 6)))


def main() -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=PATIENCE_S))
    rank = dist.get_rank()
    torch.manual_seed(0)
    net = torch.nn.Linear(8, 8)
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for step, batch in enumerate(DataLoader(torch.randn(40, 4, 8), batch_size=None)):
        astray = step == STEP and rank == BAD
        loss = model(batch).sum()
        if astray and FAULT in ("evaluation", "slow"):
            evaluate(net)
        if astray and FAULT == "exception":
            raise ValueError("bad sample 17")
        loss.backward()
        synchronise(step, astray)
        message(step)
        if step == STEP and FAULT == "store":
            await_key()
        optimizer.step()
        optimizer.zero_grad()
        if step == STEP - 1:
            dist.barrier()
            dist.distributed_c10d._set_pg_timeout(timedelta(seconds=TIMEOUT_S), dist.group.WORLD)
    print("finished", flush=True)


main()
