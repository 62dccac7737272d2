"""Two ranks of DDP on one device. FAULT=1, by MODE: late and fsdp (loader of rank 1), python and gc (after each step of
rank 1), save (rank 0, every eighth step), objects (gathered each step), buckets (small), single (all-reduce of each
parameter), long (rank 1 has six times the tokens)."""

import gc
import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from turn import FAULT, RANK, STEPS, Turn

MODE, BACKEND = os.environ.get("MODE", "late"), os.environ.get("BACKEND", "gloo")
SECOND = FAULT and RANK == 1
# NCCL refuses two ranks on one GPU, which it knows by host and bus: with a host's name of its own each rank is taken
# for another machine's, and they talk by sockets over the loopback. What is faster within a machine has to be off.
ALONE = {f"NCCL_{name}_DISABLE": "1" for name in ("P2P", "SHM", "IB")} | {"NCCL_NVLS_ENABLE": "0"}
ALONE |= {"NCCL_CUMEM_ENABLE": "0", "NCCL_NET": "Socket", "NCCL_SOCKET_IFNAME": "lo", "NCCL_HOSTID": f"host{RANK}"}


class Documents(Dataset):
    def __len__(self):
        return 1 << 16

    def __getitem__(self, number):
        if SECOND and MODE in ("late", "fsdp"):
            time.sleep(0.0015)
        return torch.full((64, width), number / len(self))


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, inputs):
        return inputs + self.down(nn.functional.gelu(self.up(self.norm(inputs))))


def reduce(parameters):
    world = dist.get_world_size()
    if FAULT:
        for each in parameters:
            dist.all_reduce(each.grad)
            each.grad /= world
        return
    flat = torch.cat([each.grad.flatten() for each in parameters])
    dist.all_reduce(flat)
    parts = (flat / world).split([each.numel() for each in parameters])
    torch._foreach_copy_([p.grad for p in parameters], [v.view_as(p) for v, p in zip(parts, parameters, strict=True)])


def after(step, model):
    if SECOND and MODE == "python":
        words = {}
        for number in range(120_000):
            words[number % 977] = words.get(number % 977, 0) + 1
    if SECOND and MODE == "gc":
        kept = [[number] for number in range(150_000)]
        del kept
        gc.collect()
    if FAULT and MODE == "save" and RANK == 0 and step % 8 == 0:
        torch.save(model.state_dict(), os.path.join(folder, "pair.pt"))


turn, folder = Turn(), tempfile.mkdtemp()
os.environ.update(ALONE if BACKEND == "nccl" else {})
dist.init_process_group(BACKEND)
width, layers = (1024, 6) if turn.device == "cuda" else (64, 3)
torch.set_float32_matmul_precision("high")
model = net = nn.Sequential(*[Layer(width) for _ in range(layers)]).to(turn.device)
if MODE == "fsdp":
    for layer in net:
        fully_shard(layer)
    fully_shard(net)
elif MODE != "single":
    buckets = {"bucket_cap_mb": 0.05} if FAULT and MODE == "buckets" else {}
    model = nn.parallel.DistributedDataParallel(net, **buckets)
optimizer = torch.optim.AdamW(net.parameters(), 1e-4)
documents = Documents()
loader = DataLoader(documents, 16, sampler=DistributedSampler(documents), drop_last=True)
for step, batch in zip(range(STEPS), loader, strict=False):
    turn.step()
    if SECOND and MODE == "long":
        batch = batch.repeat(1, 6, 1)
    loss = model(batch.to(turn.device)).square().mean()
    loss.backward()
    if MODE == "single":
        reduce(list(net.parameters()))
    if FAULT and MODE == "objects":
        everyone = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, {"loss": loss.item(), "rank": RANK})
        dist.barrier()
    optimizer.step()
    optimizer.zero_grad()
    after(step, net)
dist.barrier()
turn.end()
dist.destroy_process_group()
