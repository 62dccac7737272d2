"""Every way to train that torch itself has, on two ranks: `framework.py KIND...`."""

import contextlib
import gc
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

STEPS = 10
WIDTH = 16


class Net(nn.Module):
    """Four layers in two blocks; `recompute` checkpoints the second."""

    def __init__(self, recompute: bool = False) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(WIDTH, 32), nn.ReLU())
        self.second = nn.Sequential(nn.Linear(32, 32), nn.ReLU())
        self.head = nn.Linear(32, WIDTH)
        self.recompute = recompute

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        x = checkpoint(self.second, x, use_reentrant=False) if self.recompute else self.second(x)
        out: Tensor = self.head(x)
        return out


def batches(count: int) -> Any:
    data = TensorDataset(torch.randn(count * 8, WIDTH), torch.randn(count * 8, WIDTH))
    sampler: Any = DistributedSampler(data, num_replicas=1, rank=0)
    return DataLoader(data, batch_size=4, sampler=sampler)


def plain(model: nn.Module, steps: int = STEPS, micro: int = 1, no_sync: bool = False) -> None:
    """The usual loop, `micro` batches per optimizer step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for index, (x, y) in zip(range(steps * micro), batches(steps * micro), strict=False):
        last = index % micro == micro - 1
        context = contextlib.nullcontext() if last or not no_sync else model.no_sync()  # type: ignore[operator]
        with context:
            nn.functional.mse_loss(model(x), y).backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()


def fsdp1() -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel

    plain(FullyShardedDataParallel(Net(), device_id=torch.device("cpu")))


def fsdp2() -> None:
    from torch.distributed.fsdp import fully_shard

    model = Net()
    for layer in (model.first, model.second):
        fully_shard(layer)
    fully_shard(model)
    plain(model)


def hsdp() -> None:
    from torch.distributed.fsdp import fully_shard

    mesh = dist.init_device_mesh("cpu", (2, 1), mesh_dim_names=("replicate", "shard"))
    model = Net()
    fully_shard(model, mesh=mesh)
    plain(model)


def tensor_parallel() -> None:
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = dist.init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    model = Net()
    parallelize_module(model, mesh, {"first.0": ColwiseParallel(), "second.0": RowwiseParallel()})
    plain(model)


def two_optimizers() -> None:
    """A GAN: two optimizers, a GradScaler that skips the third step, a gradient penalty."""
    generator, critic = DistributedDataParallel(Net()), DistributedDataParallel(nn.Linear(WIDTH, 1))
    scaler = torch.amp.GradScaler("cpu", enabled=True)
    both = [torch.optim.Adam(model.parameters(), lr=1e-3) for model in (critic, generator)]
    for index, (x, _) in zip(range(STEPS), batches(STEPS), strict=False):
        x.requires_grad_(True)
        penalty = torch.autograd.grad(critic(x).sum(), x, create_graph=True)[0].square().mean()
        loss = critic(generator(x).detach()).mean() - critic(x).mean() + penalty
        if index == 2:
            loss = loss * float("inf")
        for optimizer, value in zip(both, (loss, None), strict=True):
            optimizer.zero_grad()
            scaler.scale(value if value is not None else -critic(generator(x)).mean()).backward()
            scaler.step(optimizer)
        scaler.update()


def no_loader() -> None:
    model = DistributedDataParallel(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(torch.randn(4, WIDTH)).square().mean().backward()
        optimizer.step()


def pipeline(name: str) -> None:
    """Two stages (four for the interleaved schedule), four microbatches."""
    from torch.distributed import pipelining

    torch.manual_seed(0)
    rank, stages = dist.get_rank(), 4 if name == "interleaved" else 2
    mine = range(rank, stages, 2)
    modules = {index: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for index in mine}
    where: dict[str, Any] = {"device": torch.device("cpu"), "input_args": (torch.zeros(4, WIDTH),)}
    built = [pipelining.PipelineStage(modules[index], index, stages, **where) for index in mine]
    loss = nn.functional.mse_loss
    schedule: Any
    if name == "interleaved":
        schedule = pipelining.ScheduleInterleaved1F1B(built, 4, loss_fn=loss)
    else:
        kind = {"gpipe": pipelining.ScheduleGPipe, "1f1b": pipelining.Schedule1F1B}[name]
        schedule = kind(built[0], 4, loss_fn=loss)
    optimizer = torch.optim.SGD([p for module in modules.values() for p in module.parameters()], lr=1e-3)
    for _, (x, y) in zip(range(STEPS), batches(2 * STEPS), strict=False):
        x, y = torch.cat([x] * 4), torch.cat([y] * 4)
        optimizer.zero_grad()
        if rank == 0:
            schedule.step(x)
        if rank == 1:
            schedule.step(target=y, losses=[])
        optimizer.step()


def whole(**options: Any) -> DistributedDataParallel:
    return DistributedDataParallel(Net(**options))


KINDS: dict[str, Callable[[], None]] = {
    "ddp": lambda: plain(whole()),
    "accumulation": lambda: plain(whole(), micro=3),
    "no_sync": lambda: plain(whole(), micro=3, no_sync=True),
    "wrapped_ddp": lambda: plain(nn.Sequential(whole())),  # inside another module, as in Lightning Fabric
    "activation_checkpointing": lambda: plain(whole(recompute=True)),
    "compiled": lambda: plain(torch.compile(whole(), backend="aot_eager")),  # type: ignore[arg-type]
    **{made.__name__: made for made in (fsdp1, fsdp2, hsdp, tensor_parallel, two_optimizers, no_loader)},
}


torch.set_num_threads(1)
dist.init_process_group("gloo")
for kind in sys.argv[1:]:
    torch.manual_seed(dist.get_rank())
    if kind in KINDS:
        KINDS[kind]()
    else:
        pipeline(kind)
    gc.collect()  # the model is in a cycle: of the kinds, the last one's alone is described in the end
    if dist.get_rank() == 0:
        print(kind, flush=True)
dist.destroy_process_group()
