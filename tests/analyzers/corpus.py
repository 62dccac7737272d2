"""Small labelled runs, one per rule and a few healthy ones: drawn by the trace generator, so their truth is known.

Four ranks and three steps where that is enough: every run is generated and analyzed once per session (see conftest.py).
"""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # benchmarks/ is not installed

from benchmarks.oracle.small_runs import fault, small_run
from benchmarks.oracle.spec import Format, Model, Parallel

MODEL = Model(layers=4, unit_us=390.0, params_per_layer=10_000_000)
STAGE = replace(MODEL, layers=3, unit_us=900.0)
TENSOR_PARALLEL = Parallel("tpdp", dp=2, tp=2)
PIPELINE = Parallel("pp", dp=1, pp=2, microbatches=8, activation_elems=4_000_000)
job = partial(small_run, ranks=4, model=MODEL, loader_us=20_000.0)

CLEAN = {
    "clean.ddp": job(kind="clean.ddp"),
    "clean.fsdp": job(kind="clean.fsdp", parallel=Parallel("fsdp", dp=4)),
    "clean.tpdp": job(kind="clean.tpdp", hosts=2, parallel=TENSOR_PARALLEL),
    "clean.pp": job(kind="clean.pp", ranks=2, model=STAGE, parallel=replace(PIPELINE, microbatches=16)),
}
FAULTY = {
    "straggler.compute": job(fault("straggler.compute", 0.3, 2, mode="all")),
    "straggler.host": job(fault("straggler.host", 9e3, 1, mode="stall")),
    "straggler.imbalance": job(fault("straggler.imbalance", 0.25), steps=5),
    "input.starved": job(fault("input.starved", 6e4, num_workers=2, recommended_num_workers=16)),
    "input.straggler": job(fault("input.straggler", 8.0, 3), steps=5),
    "input.pageable_copy": job(fault("input.pageable_copy", 6e7)),
    "comm.latency_bound": job(
        fault("comm.latency_bound", 900.0, bucket_cap_mb=1.0, recommended_bucket_cap_mb=25.0),
    ),
    "comm.no_overlap": job(
        fault("comm.no_overlap", 5.0, mode="huge", bucket_cap_mb=1e6, recommended_bucket_cap_mb=25.0),
    ),
    "comm.bandwidth_bound": job(fault("comm.bandwidth_bound", 50.0)),
    "comm.slow_link": job(
        fault("comm.slow_link", 40.0, 0, 2),
        ranks=8,
        hosts=2,
        parallel=Parallel("tpdp", dp=4, tp=2),
    ),
    "comm.sharding": job(fault("comm.sharding", 8.0, remedy="reshard"), parallel=Parallel("fsdp", dp=4)),
    "host.launch_bound": job(
        fault("host.launch_bound", 6.0),
        model=replace(MODEL, unit_us=120.0, params_per_layer=1_000_000),
        loader_us=3_000.0,
    ),
    "host.sync": job(fault("host.sync", 1_500.0)),
    "host.gc": job(fault("host.gc", 9e3, chance=0.6), steps=5),
    "host.checkpoint": job(fault("host.checkpoint", 2e4, step=1)),
    "host.allocator": job(fault("host.allocator", 7e3)),
    "memory.headroom": job(fault("memory.headroom", 7e3), form=Format(memory=True)),
    "pipeline.bubble": job(
        fault("pipeline.bubble", 2.0, microbatches=2, recommended_microbatches=8),
        ranks=2,
        model=STAGE,
        parallel=PIPELINE,
    ),
    "pipeline.imbalance": job(
        fault("pipeline.imbalance", 2.0, stage=1),
        ranks=2,
        model=STAGE,
        parallel=replace(PIPELINE, microbatches=16),
    ),
    "compute.precision": job(fault("compute.precision", 2.2), form=Format(shapes=True)),
    "compute.unfused_optimizer": job(
        fault("compute.unfused_optimizer", 30.0),
        ranks=2,
        model=replace(MODEL, layers=3),
    ),
}
OLD = Format(names="old", seq=False, collective_args=False, time="integer")  # before PyTorch 2.1: nothing names a group
HARD = {
    "pipeline without arguments": job(
        fault("pipeline.bubble", 3.0, microbatches=3, recommended_microbatches=8),
        ranks=3,
        model=STAGE,
        parallel=replace(PIPELINE, pp=3),
        form=OLD,
    ),
    "mesh without arguments": job(
        fault("straggler.compute", 0.3, 2, mode="all"),
        hosts=2,
        parallel=TENSOR_PARALLEL,
        form=OLD,
    ),
    "buckets without sizes": job(
        fault("comm.latency_bound", 900.0, bucket_cap_mb=1.0, recommended_bucket_cap_mb=25.0),
        form=OLD,
    ),
    "slow rank, and frees that wait for it": job(
        fault("straggler.compute", 0.4, 1, mode="all"),
        fault("host.allocator", 7e3),
    ),
    "two of six ranks slow": job(fault("straggler.compute", 0.35, 1, 2, mode="all"), ranks=6),
}
SCENARIOS = {**CLEAN, **FAULTY, **HARD}
