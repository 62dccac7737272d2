"""A two-layer model under DDP on random data, a job of seconds; `--incident` happens at step AT."""

import argparse
import itertools
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

AT = 8
parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=14)
parser.add_argument("--incident", default="none")
parser.add_argument("--rank", type=int, default=1, help="the rank it happens on")
parser.add_argument("--sleep", type=float, default=0.0, help="seconds per step")
parser.add_argument("--losses", default="")
parser.add_argument("--until", default="", help="go on until this file is there")
parser.add_argument("--wrapper", default="ddp", choices=("ddp", "fsdp2"))
options = parser.parse_args()

torch.set_num_threads(1)
torch.manual_seed(0)
dist.init_process_group("gloo")
rank = dist.get_rank()
model: torch.nn.Module = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
if options.wrapper == "fsdp2":
    from torch.distributed.fsdp import fully_shard

    fully_shard(model)
else:
    model = DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = TensorDataset(torch.randn(512, 16), torch.randn(512, 4))
loader = DataLoader(data, batch_size=8)
profiler = None
losses: list[float] = []


def event() -> None:
    """Let it happen at the start of step AT on the chosen rank."""
    global profiler
    if options.incident == "profiler":
        profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
        profiler.start()
    elif options.incident == "exception":
        raise RuntimeError("the script's own defect")
    elif options.incident in ("SIGTERM", "SIGKILL"):
        os.kill(os.getpid(), getattr(signal, options.incident))
        time.sleep(30)
    elif options.incident == "exit":
        os._exit(7)
    elif options.incident == "replaced":
        os.execvp("sh", ["sh", "-c", "exit 7"])
    elif options.incident == "hang":
        print("hanging", flush=True)
        time.sleep(3600)


def is_over(step: int) -> bool:
    """True once the job ends before this step, on all ranks."""
    if not options.until:
        return step >= options.steps
    there = torch.tensor(float(os.path.exists(options.until)))
    dist.all_reduce(there)
    return bool(there)


for step, (x, y) in enumerate(itertools.chain.from_iterable(itertools.repeat(loader))):
    if is_over(step):
        break
    if step == AT and rank == options.rank:
        event()
    time.sleep(options.sleep)
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    if profiler is not None and step == AT + 2:
        profiler.stop()
        print("user events", len(profiler.events()), flush=True)

if rank == 0:
    print("finished", len(losses), flush=True)
    if options.losses:
        with open(options.losses, "w", encoding="ascii") as stream:
            stream.writelines(f"{loss.hex()}\n" for loss in losses)
dist.destroy_process_group()
sys.exit(0)
