"""Healthy jobs to start from: models, clusters, parallelisms and file formats drawn at random."""

from __future__ import annotations

import numpy as np

from benchmarks.oracle.spec import Cluster, Format, Loader, Model, Noise, Parallel, Scenario

HOST_STYLES = ("gpu-worker-{:02d}", "node{:02d}", "h{:02d}", "ip-10-0-{}-17", "dgx{:03d}")
MAX_PER_HOST = 8
DEVICES = ("h100", "h100", "h100", "a100", "a100", "v100", "mi300x", "mi250")
AMD_DEVICES = frozenset({"mi300x", "mi250"})
SMALL_WORLDS = (2, 4, 4, 4, 8, 8)
LARGE_WORLDS = (16, 16, 32, 64)
LARGE_CHANCE = 0.12
KINETO_LAYOUTS = ("classic", "classic", "lines", "compact")


def draw_cluster(draw: np.random.Generator, world: int, hosts: int) -> Cluster:
    """`world` ranks over `hosts` hosts in blocks, clocks apart by microseconds to seconds."""
    style = HOST_STYLES[int(draw.integers(len(HOST_STYLES)))]
    per_host = -(-world // hosts)
    names = [style.format(i) for i in range(hosts)]
    clocks = {names[0]: (0.0, 0.0)}
    for name in names[1:]:
        offset = float(draw.choice([-1.0, 1.0]) * 10.0 ** draw.uniform(1.0, 6.3))
        clocks[name] = (round(offset, 2), round(float(draw.normal(0.0, 8.0)), 3))
    device = str(draw.choice(DEVICES))
    return Cluster(
        hosts=tuple(names[rank // per_host] for rank in range(world)),
        clocks=clocks,
        vendor="amd" if device in AMD_DEVICES else "nvidia",
        device=device,
        intra_alpha_us=float(draw.uniform(12.0, 26.0)),
        intra_gbps=float(draw.uniform(180.0, 320.0)),
        inter_alpha_us=float(draw.uniform(22.0, 40.0)),
        inter_gbps=float(draw.uniform(80.0, 160.0)),
    )


def draw_model(draw: np.random.Generator, kind: str, world: int) -> Model:
    """A model whose step takes some ten to a hundred milliseconds."""
    layers = int(draw.integers(3, 5)) if world >= 16 else int(draw.integers(4, 7))
    unit = float(np.exp(draw.uniform(np.log(180.0), np.log(800.0))))
    if kind == "pp":
        layers = int(draw.integers(2, 4)) if world < 8 else 2
        unit *= 2.5
    return Model(
        arch="cnn" if kind == "ddp" and draw.uniform() < 0.25 else "gpt",
        layers=layers,
        unit_us=unit,
        hidden=int(draw.choice([768, 1024, 2048, 4096])),
        tokens=int(draw.choice([2048, 4096, 8192])),
        params_per_layer=int(draw.uniform(4e6, 14e6) * unit / 390.0),
        host_op_us=float(draw.uniform(6.5, 10.0)),
        optimizer="fused" if draw.uniform() < 0.7 else "foreach",
        sync=_draw_sync(draw, kind),
        batch_bytes=int(draw.uniform(1e6, 6e6)),
        accumulation=2 if kind == "ddp" and draw.uniform() < 0.1 else 1,
    )


def _draw_sync(draw: np.random.Generator, kind: str) -> str:
    """Draw the way in which the script waits for the device: mostly `.item()` at the end of the step."""
    chance = draw.uniform()
    if chance < 0.12:
        return "device_sync"
    return "item_mid" if chance < 0.2 and kind in ("ddp", "fsdp") else "item_end"


def draw_parallel(draw: np.random.Generator, kind: str, world: int, hosts: int) -> Parallel:
    """The degrees of a parallelism that fit `world`."""
    bucket = 25.0 if draw.uniform() < 0.8 else float(draw.choice([10.0, 15.0, 50.0]))
    if kind == "tpdp":
        tp = 2 if world < 8 or draw.uniform() < 0.6 else 4
        return Parallel(kind, dp=world // tp, tp=tp, bucket_mb=bucket, activation_elems=int(draw.uniform(4e5, 1.2e6)))
    if kind == "pp":
        pp = min(world, int(draw.choice([2, 2, 4, 4, 8])))
        factor = int(draw.choice([3, 4, 6])) if pp <= 4 else 3
        return Parallel(
            kind, dp=world // pp, pp=pp, microbatches=pp * factor,
            schedule="1f1b" if draw.uniform() < 0.8 else "gpipe", activation_elems=int(draw.uniform(2e6, 8e6)),
        )  # fmt: skip
    if kind == "hsdp":
        return Parallel(kind, dp=world, replicas=hosts if hosts > 1 else 2)
    if kind == "fsdp":
        return Parallel(kind, dp=world, prefetch=True, reshard=draw.uniform() < 0.8)
    return Parallel(kind, dp=world, bucket_mb=bucket, first_bucket_mb=1.0)


def draw_format(draw: np.random.Generator, plain: bool = False) -> Format:
    """Draw the file format; `plain` keeps everything a reader could wish for."""
    shapes, stacks, memory = (bool(draw.uniform() < chance) for chance in (0.45, 0.12, 0.12))
    layout = str(draw.choice(KINETO_LAYOUTS))
    if plain or draw.uniform() < 0.6:
        return Format(layout=layout, shapes=shapes, stacks=stacks, memory=memory, seq=bool(draw.uniform() < 0.85))
    variant = int(draw.integers(6))
    if variant == 0:  # before PyTorch 2.1: whole microseconds, no collective arguments
        return Format(layout="classic", names="old", time="integer", seq=False, collective_args=False)
    if variant == 1:
        return Format(layout=layout, time="absolute", names="old", seq=False, shapes=shapes)
    if variant == 2:
        return Format(layout=layout, step_marks=False, shapes=shapes)
    if variant == 3:
        return Format(layout=layout, distributed_info=False, naming="rank", shapes=shapes)
    if variant == 4:
        return Format(layout=layout, naming="worker", seq=False, shapes=shapes, memory=memory)
    return Format(layout="compact", naming="rank", shapes=True, stacks=True, memory=True)


def draw_contention(draw: np.random.Generator) -> float:
    """Draw the slowdown of kernels beside communication: mostly a few percent, as on real devices."""
    return 0.0 if draw.uniform() < 0.2 else float(draw.uniform(0.02, 0.07))


def draw_world_size(draw: np.random.Generator, kind: str) -> tuple[int, int]:
    """World size and number of hosts."""
    world = int(draw.choice(LARGE_WORLDS if draw.uniform() < LARGE_CHANCE else SMALL_WORLDS))
    if kind in ("tpdp", "hsdp"):
        world = max(world, 4)
    if kind == "pp":
        world = min(world, 16)
    least = -(-world // MAX_PER_HOST)
    hosts = least
    if world >= 4 and draw.uniform() < 0.45:
        hosts = max(least, int(draw.choice([2, 2, 4])) if world >= 8 else 2)
    return world, hosts


def draw_base(draw: np.random.Generator, kind: str, name: str, seed: int, world: int = 0, hosts: int = 0) -> Scenario:
    """A healthy job of a parallelism; `world` and `hosts` override the drawn size."""
    drawn_world, drawn_hosts = draw_world_size(draw, kind)
    size, count = world or drawn_world, hosts or (drawn_hosts if not world else 1)
    model = draw_model(draw, kind, size)
    return Scenario(
        name=name,
        kind=kind,
        seed=seed,
        model=model,
        cluster=draw_cluster(draw, size, count),
        parallel=draw_parallel(draw, kind, size, count),
        loader=Loader(
            jitter=float(draw.uniform(0.01, 0.03)),
            workers=int(draw.choice([4, 8])),
            cost_us=model.unit_us * model.layers * float(draw.uniform(8, 20)),
        ),
        noise=Noise(
            kernel=float(draw.uniform(0.01, 0.03)),
            step=float(draw.uniform(0.001, 0.005)),
            contention=draw_contention(draw),
        ),
        steps=2 if size >= 32 else int(draw.choice([3, 3, 3, 4, 5, 8])) if size <= 8 else 3,
        first_step=int(draw.integers(3, 400)),
        format=draw_format(draw),
    )
