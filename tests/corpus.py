"""Small labelled runs, one per rule and a few healthy ones: drawn by the trace generator, so their truth is known."""

from dataclasses import replace
from functools import partial

from benchmarks.oracle.mess.kind import with_mess
from benchmarks.oracle.small_runs import fault, small_run
from benchmarks.oracle.spec import Fault, Format, Mess, Model, Parallel

MODEL = Model(layers=4, unit_us=390.0, params_per_layer=10_000_000)
STAGE = replace(MODEL, layers=3, unit_us=900.0)
TENSOR_PARALLEL = Parallel("tpdp", dp=2, tp=2)
PIPELINE = Parallel("pp", dp=1, pp=2, microbatches=8, activation_elems=4_000_000)
OLD = Format(names="old", seq=False, collective_args=False, time="integer")  # before PyTorch 2.1: nothing names a group
MEMORY, SHAPES = Format(memory=True), Format(shapes=True)
# Four ranks and three steps where that is enough: every run is made and analyzed once per session (see conftest.py).
job = partial(small_run, ranks=4, model=MODEL, loader_us=20_000.0)
fsdp = partial(job, parallel=Parallel("fsdp", dp=4))
mesh = partial(job, ranks=8, hosts=2, parallel=Parallel("tpdp", dp=4, tp=2))
experts = partial(job, model=replace(MODEL, arch="moe"))
stages = partial(job, ranks=2, model=STAGE)
short = partial(job, model=replace(STAGE, layers=2))  # stages of two layers each
piped = partial(replace, PIPELINE)
SLOW = fault("straggler.compute", 0.3, 2, mode="all")
SMALL = fault("comm.latency_bound", 900.0, bucket_cap_mb=1.0, recommended_bucket_cap_mb=25.0)
HUGE = fault("comm.no_overlap", 5.0, mode="huge", bucket_cap_mb=1e6, recommended_bucket_cap_mb=25.0)
HEAVY = fault("pipeline.imbalance", 2.0, stage=1)
NESTED = fault("fsdp.nested", 700.0, units=3)
LAUNCHES = fault("host.launch_bound", 6.0)
launching = {"model": replace(MODEL, unit_us=120.0, params_per_layer=1_000_000), "loader_us": 3_000.0}


def few(microbatches: int, recommended: int) -> Fault:
    """A pipeline that has its bubble from so few microbatches."""
    stated = {"microbatches": microbatches, "recommended_microbatches": recommended}
    return fault("pipeline.bubble", float(microbatches), **stated)


CLEAN = {
    "clean.ddp": job(kind="clean.ddp"),
    "clean.fsdp": fsdp(kind="clean.fsdp"),
    "clean.tpdp": job(kind="clean.tpdp", hosts=2, parallel=TENSOR_PARALLEL),
    "clean.pp": stages(kind="clean.pp", parallel=piped(microbatches=16)),
}
FAULTY = {
    "straggler.compute": job(SLOW),
    "straggler.host": job(fault("straggler.host", 9e3, 1, mode="stall")),
    "straggler.imbalance": job(fault("straggler.imbalance", 0.25), steps=5),
    "input.starved": job(fault("input.starved", 6e4, num_workers=2, recommended_num_workers=16)),
    "input.straggler": job(fault("input.straggler", 8.0, 3), steps=5),
    "input.pageable_copy": job(fault("input.pageable_copy", 6e7)),
    "comm.latency_bound": job(SMALL),
    "comm.no_overlap": job(HUGE),
    "comm.bandwidth_bound": job(fault("comm.bandwidth_bound", 50.0)),
    "comm.slow_link": mesh(fault("comm.slow_link", 40.0, 0, 2)),
    "comm.sharding": fsdp(fault("comm.sharding", 8.0, remedy="reshard")),
    "host.launch_bound": job(LAUNCHES, **launching),
    "host.sync": job(fault("host.sync", 1_500.0)),
    "host.gc": job(fault("host.gc", 9e3, chance=0.6), steps=5),
    "host.checkpoint": job(fault("host.checkpoint", 2e4, step=1)),
    "host.allocator": job(fault("host.allocator", 7e3)),
    "memory.headroom": job(fault("memory.headroom", 7e3), form=MEMORY),
    "pipeline.bubble": stages(few(2, 8), parallel=PIPELINE),
    "pipeline.imbalance": stages(HEAVY, parallel=piped(microbatches=16)),
    "compute.precision": job(fault("compute.precision", 2.2), form=SHAPES),
    "compute.unfused_optimizer": job(fault("compute.unfused_optimizer", 30.0), ranks=2, model=replace(MODEL, layers=3)),
}
HARD = {
    "pipeline without arguments": stages(few(3, 8), ranks=3, parallel=piped(pp=3), form=OLD),
    "mesh without arguments": job(SLOW, hosts=2, parallel=TENSOR_PARALLEL, form=OLD),
    "buckets without sizes": job(SMALL, form=OLD),
    "slow rank, and frees that wait for it": job(replace(SLOW, strength=0.4, ranks=(1,)), fault("host.allocator", 7e3)),
    "slow link between stages": short(fault("pipeline.slow_link", 900.0, 1, 2), parallel=piped(pp=4, microbatches=12)),
    "slow link of a mesh, without arguments": mesh(fault("comm.slow_link", 40.0, 0, 2), form=OLD),
    "slow link of one replica, without arguments": short(
        fault("pipeline.slow_link", 1500.0, 1, 3), parallel=piped(dp=2, microbatches=12), form=OLD
    ),
    "slow device in a pipeline": short(SLOW, parallel=piped(pp=4, microbatches=12)),
    "slow host of a whole stage": short(replace(SLOW, ranks=(2, 3)), hosts=2, parallel=piped(dp=2, microbatches=12)),
    "device short of power in a pipeline": short(
        fault("straggler.compute", 0.4, 1, mode="matmul"), ranks=3, parallel=piped(pp=3, microbatches=12), form=SHAPES
    ),
    "hot expert": experts(fault("imbalance.hot_expert", 0.8, 3)),
    "hot expert, with shapes": experts(fault("imbalance.hot_expert", 0.8, 0), ranks=2, form=SHAPES),
    "hot table": job(fault("imbalance.hot_table", 1.5, 1), model=replace(MODEL, arch="dlrm")),
    "slow device among experts": experts(SLOW),
    "device short of power among experts": experts(fault("straggler.compute", 0.5, 1, mode="matmul")),
    "healthy experts": experts(kind="clean.moe"),
    "batches made in the loop": job(fault("input.preprocessing", 8e3)),
    "barriers in every step": job(fault("comm.barrier", 20.0)),
    "needless recomputation": job(fault("memory.recompute", 1.0, every=1, memory=0.3, kept=0.4), form=MEMORY),
    "three units a layer": fsdp(NESTED),
    "three units a layer, without sizes": fsdp(NESTED, form=OLD),
    "gathers when needed": fsdp(fault("fsdp.no_prefetch", 4.0)),
    "few microbatches, two chunks per stage": short(few(4, 16), parallel=piped(pp=4, schedule="interleaved")),
    "few microbatches, two stages of two chunks": stages(few(2, 16), parallel=piped(schedule="interleaved")),
    "inference in stages": short(kind="clean.inference", parallel=piped(pp=4, schedule="forward", microbatches=6)),
    "slow device among three dimensions": short(
        replace(SLOW, ranks=(5,)), ranks=8, hosts=2, parallel=piped(dp=2, tp=2, activation_elems=1_000_000)
    ),
    "slow device since the fourth step": job(replace(SLOW, detail={"mode": "all", "since": 3}), steps=8),
    "two of six ranks slow": job(fault("straggler.compute", 0.35, 1, 2, mode="all"), ranks=6),
}
# Runs whose prices are tested alone: their labels book what a host does late after a blocking call to the call.
PRICED = {
    "values read in the middle, and saving": job(
        fault("host.sync", 2_500.0), fault("host.checkpoint", 3e4, step=1), steps=5
    ),
    "launches of sharded units": fsdp(LAUNCHES, **launching),
}
# Activations are computed again, and nothing may be said of it: there is no memory to keep them, or nobody knows.
UNTOLD = {
    "recomputation for want of memory": job(fault("memory.recompute", 1.0, every=1, memory=0.8, kept=0.4), form=MEMORY),
    "recomputation of unknown use": job(fault("memory.recompute", 1.0, every=2, memory=0.3, kept=0.4)),
}
# The host is two steps ahead: what its device runs at first was launched before the recording.
never_synced = fsdp(NESTED, model=replace(MODEL, sync="none"), steps=5)
AHEAD = {"three units a layer, hosts ahead": with_mess(never_synced, Mess("ahead", 2.0))}
# One step in which the model is evaluated, by all ranks or by one.
EVALUATED = {
    "validation in one step": with_mess(job(kind="clean.ddp", steps=4), Mess("val", 3.0, (), {"place": 1})),
    "validation on one rank": job(fault("host.evaluation", 3.0, 0, every=2), steps=3),
}
two_replicas = stages(HEAVY, ranks=4, parallel=piped(dp=2))
PARTIAL = {"heavy stage, one of its replicas not traced": replace(two_replicas, missing_ranks=(3,))}
JUDGED = {**CLEAN, **FAULTY, **HARD}
WHOLE = {**JUDGED, **UNTOLD, **AHEAD, **EVALUATED}
SCENARIOS = {**WHOLE, **PARTIAL}
EVERY = {**SCENARIOS, **PRICED}
