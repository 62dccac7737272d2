"""Small labelled runs, one per rule and a few healthy ones: drawn by the trace generator, so their truth is known.

Four ranks and three steps where that is enough: every run is generated and analyzed once per session (see conftest.py).
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # benchmarks/ is not installed

from benchmarks.oracle.spec import Cluster, Fault, Format, Loader, Model, Noise, Parallel, Scenario

SEED = 7
HOST_OFFSET_US = 1500.25
MODEL = Model(layers=4, unit_us=390.0, params_per_layer=10_000_000)
STAGE = replace(MODEL, layers=3, unit_us=900.0)
TENSOR_PARALLEL = Parallel("tpdp", dp=2, tp=2)
PIPELINE = Parallel("pp", dp=1, pp=2, microbatches=8, activation_elems=4_000_000)


def cluster(ranks: int, hosts: int = 1) -> Cluster:
    """Ranks over hosts in blocks; each further host's clock is 1.5 ms ahead of the one before."""
    names = [f"node{i:02d}" for i in range(hosts)]
    return Cluster(
        hosts=tuple(names[rank * hosts // ranks] for rank in range(ranks)),
        clocks={name: (HOST_OFFSET_US * i, 0.0) for i, name in enumerate(names)},
    )


def job(
    kind: str,
    *faults: Fault,
    ranks: int = 4,
    hosts: int = 1,
    steps: int = 3,
    model: Model = MODEL,
    parallel: Parallel | None = None,
    loader_us: float = 20_000.0,
    form: Format | None = None,
) -> Scenario:
    """A run of four data-parallel ranks on one host, unless told otherwise."""
    return Scenario(
        name=kind,
        kind=kind,
        seed=SEED,
        model=model,
        cluster=cluster(ranks, hosts),
        parallel=parallel or Parallel("ddp", dp=ranks),
        loader=Loader(cost_us=loader_us),
        noise=Noise(),
        steps=steps,
        faults=faults,
        format=form or Format(),
    )


def _settings(**detail: float | str | bool) -> dict[str, float | str | bool]:
    return detail


CLEAN = {
    "clean.ddp": job("clean.ddp"),
    "clean.fsdp": job("clean.fsdp", parallel=Parallel("fsdp", dp=4)),
    "clean.tpdp": job("clean.tpdp", hosts=2, parallel=TENSOR_PARALLEL),
    "clean.pp": job("clean.pp", ranks=2, model=STAGE, parallel=replace(PIPELINE, microbatches=16)),
}
FAULTY = {
    "straggler.compute": job("straggler.compute", Fault("straggler.compute", 0.3, (2,), _settings(mode="all"))),
    "straggler.host": job("straggler.host", Fault("straggler.host", 9e3, (1,), _settings(mode="stall"))),
    "straggler.imbalance": job("straggler.imbalance", Fault("straggler.imbalance", 0.25), steps=5),
    "input.starved": job(
        "input.starved", Fault("input.starved", 6e4, (), _settings(num_workers=2, recommended_num_workers=16))
    ),
    "input.straggler": job("input.straggler", Fault("input.straggler", 8.0, (3,)), steps=5),
    "input.pageable_copy": job("input.pageable_copy", Fault("input.pageable_copy", 6e7)),
    "comm.latency_bound": job(
        "comm.latency_bound",
        Fault("comm.latency_bound", 900.0, (), _settings(bucket_cap_mb=1.0, recommended_bucket_cap_mb=25.0)),
    ),
    "comm.no_overlap": job(
        "comm.no_overlap",
        Fault("comm.no_overlap", 5.0, (), _settings(mode="huge", bucket_cap_mb=1e6, recommended_bucket_cap_mb=25.0)),
    ),
    "comm.bandwidth_bound": job("comm.bandwidth_bound", Fault("comm.bandwidth_bound", 50.0)),
    "comm.slow_link": job(
        "comm.slow_link",
        Fault("comm.slow_link", 40.0, (0, 2)),
        ranks=8,
        hosts=2,
        parallel=Parallel("tpdp", dp=4, tp=2),
    ),
    "comm.sharding": job(
        "comm.sharding", Fault("comm.sharding", 8.0, (), _settings(remedy="reshard")), parallel=Parallel("fsdp", dp=4)
    ),
    "host.launch_bound": job(
        "host.launch_bound",
        Fault("host.launch_bound", 6.0),
        model=replace(MODEL, unit_us=120.0, params_per_layer=1_000_000),
        loader_us=3_000.0,
    ),
    "host.sync": job("host.sync", Fault("host.sync", 1_500.0)),
    "host.gc": job("host.gc", Fault("host.gc", 9e3, (), _settings(chance=0.6)), steps=5),
    "host.checkpoint": job("host.checkpoint", Fault("host.checkpoint", 2e4, (), _settings(step=1))),
    "host.allocator": job("host.allocator", Fault("host.allocator", 7e3)),
    "memory.headroom": job("memory.headroom", Fault("memory.headroom", 7e3), form=Format(memory=True)),
    "pipeline.bubble": job(
        "pipeline.bubble",
        Fault("pipeline.bubble", 2.0, (), _settings(microbatches=2, recommended_microbatches=8)),
        ranks=2,
        model=STAGE,
        parallel=PIPELINE,
    ),
    "pipeline.imbalance": job(
        "pipeline.imbalance",
        Fault("pipeline.imbalance", 2.0, (), _settings(stage=1)),
        ranks=2,
        model=STAGE,
        parallel=replace(PIPELINE, microbatches=16),
    ),
    "compute.precision": job("compute.precision", Fault("compute.precision", 2.2), form=Format(shapes=True)),
    "compute.unfused_optimizer": job(
        "compute.unfused_optimizer",
        Fault("compute.unfused_optimizer", 30.0),
        ranks=2,
        model=replace(MODEL, layers=3),
    ),
}
OLD = Format(names="old", seq=False, collective_args=False, time="integer")  # before PyTorch 2.1: nothing names a group
HARD = {
    "pipeline without arguments": job(
        "pipeline.bubble",
        Fault("pipeline.bubble", 3.0, (), _settings(microbatches=3, recommended_microbatches=8)),
        ranks=3,
        model=STAGE,
        parallel=replace(PIPELINE, pp=3),
        form=OLD,
    ),
    "mesh without arguments": job(
        "straggler.compute",
        Fault("straggler.compute", 0.3, (2,), _settings(mode="all")),
        hosts=2,
        parallel=TENSOR_PARALLEL,
        form=OLD,
    ),
    "buckets without sizes": job(
        "comm.latency_bound",
        Fault("comm.latency_bound", 900.0, (), _settings(bucket_cap_mb=1.0, recommended_bucket_cap_mb=25.0)),
        form=OLD,
    ),
    "slow rank, and frees that wait for it": job(
        "straggler.compute",
        Fault("straggler.compute", 0.4, (1,), _settings(mode="all")),
        Fault("host.allocator", 7e3),
    ),
    "two of six ranks slow": job(
        "straggler.compute", Fault("straggler.compute", 0.35, (1, 2), _settings(mode="all")), ranks=6
    ),
}
SCENARIOS = {**CLEAN, **FAULTY, **HARD}
