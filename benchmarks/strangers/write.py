"""The text of a script and of its twin, and where in it the fault is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.strangers.faults import BESIDE, FAULTS, OF_LOADER
from benchmarks.strangers.loops import LOOPS
from benchmarks.strangers.sources import EPOCH, SOURCES
from benchmarks.strangers.spec import POSITIONS, Spec

HELPERS = ("audit", "digest", "tidy", "report", "mark", "review")
_SLOT = re.compile(r"^( *)@(\w+)$")
_CONDITIONS = {
    "first": "rank == 0",
    "last": "rank == world - 1",
    "half": "rank < world // 2",
    "turns": "rank == len(ticks) % world",
    "all": "",
}
_TIMES = {
    "always": "",
    "every 3rd": "len(ticks) % 3 == 0",
    "from the 15th": "len(ticks) >= 15",
    "at random": "dice.random() < 0.3",
}
_HEAD = """import contextlib
import gc
import json
import logging
import os
import queue
import random
import socket
import sys
import threading
import time

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset

{imports}dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(1)
WIDTH, DEPTH, BATCH, STEPS, COUNT = {width}, {depth}, {batch}, {steps}, {count}
folder = sys.argv[1]
ticks = []
dice = random.Random({dice})
@setup


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(DEPTH))
        self.head = nn.Linear(WIDTH, 4)
        @lift

    def forward(self, x):
        @forward
        for layer in self.layers:
            x = torch.relu(layer(x))
        x = x.mean(1) if x.dim() > 2 else x
        @hooked
        return self.head(x)


def mean_loss(out, y):
    @loss
    return nn.functional.cross_entropy(out, y)


core = Net()
"""
_TAIL = """
with open(f"{folder}/times{rank}.json", "w") as out:
    json.dump(ticks, out)
dist.destroy_process_group()
"""
# Texts of a script, in turn: on a GPU each is replaced. Ranks that share a GPU talk over NCCL by sockets, as it refuses
# two ranks of one host there; rows are spread over positions, so that the device has something to compute.
_ON_GPU = (
    (
        'dist.init_process_group("gloo")\n',
        "device = torch.device('cuda')\n"
        'apart = {f"NCCL_{name}_DISABLE": "1" for name in ("P2P", "SHM", "IB")}\n'
        'apart |= {"NCCL_NVLS_ENABLE": "0", "NCCL_CUMEM_ENABLE": "0", "NCCL_NET": "Socket"}\n'
        'apart |= {"NCCL_SOCKET_IFNAME": "lo", "NCCL_HOSTID": "host" + os.environ["RANK"]}\n'
        'os.environ |= apart if os.environ["WORLD_SIZE"] != "1" else {}\n'
        'dist.init_process_group("nccl")\n',
    ),
    ("core = Net()\n", "core = Net().to(device)\n"),
    ("        @lift\n", f"        self.places = nn.Parameter(torch.zeros({POSITIONS}, WIDTH))\n        @lift\n"),
    ("        @forward\n", "        x = x.unsqueeze(-2) + self.places\n        @forward\n"),
    ("x = x.mean(1) if x.dim() > 2 else x", "x = x.flatten(1, -2).mean(1)"),
    ("torch.autocast('cpu')", "torch.autocast('cuda', torch.bfloat16)"),
    ("init_device_mesh('cpu'", "init_device_mesh('cuda'"),
    ("Accelerator(cpu=True)", "Accelerator()"),
    ('accelerator="cpu"', 'accelerator="gpu"'),
    ("nn.Linear(WIDTH, 1)))", "nn.Linear(WIDTH, 1)).to(device))"),
)
_BATCH = re.compile(r"^( *)(x, y = next\(batches\)|for number, \(x, y\) in .*:|x, y = batch)\n", re.MULTILINE)
_MADE = re.compile(r"torch\.(?:randn\(64, WIDTH|ones\(16, WIDTH|eye\(WIDTH)(?=\))")
# Jobs that share a GPU have it in turn: imports and groups are made before, the steps and the end are behind the lock.
_TURN = """
if "GPU_TURN" in os.environ:
    turn = open(os.environ["GPU_TURN"], "w")
    if rank == 0:
        fcntl.flock(turn, fcntl.LOCK_EX)
    dist.barrier()
"""
# Of one structure alone: these take a second.
_IMPORTS = {
    "accelerate": "import accelerate\n\n",
    "lightning": "import lightning\n\n",
    "fsdp2": "from torch.distributed.device_mesh import init_device_mesh\n"
    "from torch.distributed.fsdp import fully_shard\n\n",
}
_LIFT = "self.lift = torch.eye(WIDTH)"


@dataclass(frozen=True)
class Script:
    """`lines`: numbers of the fault's lines and of those that call it, from 1; `functions`: that hold them."""

    text: str
    twin: str
    lines: tuple[int, ...]
    functions: tuple[str, ...]


def write(spec: Spec) -> Script:
    """Both texts. The twin has no line of the fault, and no other difference."""
    marked = _fill(spec, with_fault=True)
    lines = [number for number, (_, is_fault) in enumerate(marked, 1) if is_fault]
    return Script(
        _text(line for line, _ in marked),
        _text(line for line, _ in _fill(spec, with_fault=False)),
        tuple(lines),
        tuple(sorted(_functions([line for line, _ in marked], lines))),
    )


def _text(lines: Iterable[str]) -> str:
    return "\n".join(lines) + "\n"


def _template(spec: Spec) -> str:
    loop, source = LOOPS[spec.loop], SOURCES[spec.source]
    imports = _IMPORTS.get(spec.loop, "")
    whole = FAULTS[spec.fault].whom == ("all",)
    head = _HEAD.format(
        imports=imports,
        width=spec.width,
        depth=spec.depth,
        batch=spec.batch,
        steps=spec.steps,
        count=(spec.steps + 4) * loop.per_step,
        dice=7 if whole else "rank",
    )
    text = head + loop.wrap + "\n" + source.text
    return text + loop.text + _TAIL if spec.device == "cpu" else _moved(text + _TURN + loop.text + _TAIL)


def _moved(text: str) -> str:
    """A template on a GPU."""
    for here, there in _ON_GPU:
        text = text.replace(here, there)

    def with_move(found: re.Match[str]) -> str:
        indent = found[1] + "    " * found[2].startswith("for")
        return f"{found[0]}{indent}x, y = x.to(device), y.to(device)\n"

    return _BATCH.sub(with_move, text.replace("import gc\n", "import fcntl\nimport gc\n", 1))


def _fill(spec: Spec, with_fault: bool) -> list[tuple[str, bool]]:
    """Each line, and whether the fault is its reason."""
    slots = _slots(spec) if with_fault else {}
    filled: list[tuple[str, bool]] = []
    for line in _template(spec).splitlines():
        found = _SLOT.match(line)
        if found is None:
            filled.append((line, False))
        else:
            filled += [((found[1] + one) if one else "", True) for one in slots.get(found[2], ())]
    return filled


def _slots(spec: Spec) -> dict[str, list[str]]:
    """Lines by slot."""
    fault = FAULTS[spec.fault]
    count = str(fault.count(spec.amount_ms / _per_batch(spec)))
    body, setup = ([_made(line.replace("{n}", count), spec) for line in lines] for lines in (fault.body, fault.setup))
    slots = {"setup": setup}
    if spec.in_helper and not fault.is_inline:
        name = HELPERS[spec.number % len(HELPERS)]
        setup += ["", "", f"def {name}():", *(f"    {line}" for line in body)]
        body = [f"{name}()"]
    tests = [test for test in (_CONDITIONS[spec.who], _TIMES[spec.when]) if test]
    if tests:
        body = [f"if {' and '.join(tests)}:", *(f"    {line}" for line in body)]
    if spec.where in BESIDE:
        setup += ["", "", *body]
    elif spec.where == "hook":
        setup += ["", "", "def on_gradient(grad):", *(f"    {line}" for line in body), "    return grad"]
        slots["hooked"] = ["if x.requires_grad:", "    x.register_hook(on_gradient)"]
    else:
        slots[spec.where] = body
    if spec.fault == "more layers":
        slots["lift"] = [_made(_LIFT, spec)]
    return slots


def _made(line: str, spec: Spec) -> str:
    """A line whose tensors are where the model is."""
    return line if spec.device == "cpu" else _MADE.sub(r"\g<0>, device=device", line)


def _per_batch(spec: Spec) -> float:
    """Passes of the slot per step."""
    if spec.where == "workers":
        return LOOPS[spec.loop].per_step / EPOCH
    if spec.where == "item":
        return spec.batch * LOOPS[spec.loop].per_step
    inner = spec.where in (*OF_LOADER, "fed", "forward", "hook", "loss")
    return LOOPS[spec.loop].per_step if inner else 1


def _functions(text: Sequence[str], numbers: Sequence[int]) -> set[str]:
    """Names of the innermost functions that hold some lines."""
    found = set()
    for number in numbers:
        indent = len(text[number - 1]) - len(text[number - 1].lstrip())
        for line in reversed(text[: number - 1]):
            begun = re.match(r"^( *)def (\w+)", line)
            if begun and len(begun[1]) < indent and text[number - 1].strip():
                found.add(begun[2])
                break
    return found
