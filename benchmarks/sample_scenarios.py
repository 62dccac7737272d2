"""The runs that sample_traces/ holds: as small as a run can be that still shows its fault plainly."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from benchmarks.oracle.small_runs import fault, small_run
from benchmarks.oracle.spec import Format, Model, Parallel, Scenario

MODEL = Model(layers=3, unit_us=390.0, params_per_layer=10_000_000)
STAGE = replace(MODEL, layers=2, unit_us=900.0)
PIPELINE = Parallel("pp", dp=1, pp=2, microbatches=8, activation_elems=4_000_000)
_run = partial(small_run, ranks=2, model=MODEL, loader_us=15_000.0)


@dataclass(frozen=True)
class Sample:
    """A folder of sample_traces/. `note`: a finding that only a capture can show is written into its sidecars."""

    name: str
    title: str
    scenario: Scenario
    note: str = ""


SAMPLES = (
    Sample("healthy", "a healthy run: nothing to find", _run(ranks=4, hosts=2)),
    Sample(
        "slow_gpu",
        "one device is slower than its peers for the same work",
        _run(fault("straggler.compute", 0.3, 2, mode="all"), ranks=4),
    ),
    Sample(
        "slow_host",
        "one rank's host issues work more slowly",
        _run(fault("straggler.host", 9e3, 1, mode="stall"), ranks=3),
    ),
    Sample(
        "imbalance",
        "ranks get unequal work, and who is late changes",
        _run(fault("straggler.imbalance", 0.3), ranks=3, steps=5, model=replace(MODEL, layers=2)),
    ),
    Sample(
        "starved_loader",
        "every rank waits for its data loader",
        _run(fault("input.starved", 6e4, num_workers=2, recommended_num_workers=16)),
    ),
    Sample("late_loader", "one rank's data loader is late", _run(fault("input.straggler", 8.0, 2), ranks=3, steps=4)),
    Sample("unsharded", "every rank reads the same samples", _run(), note="input.unsharded"),
    Sample("pageable_copy", "batches are copied from pageable memory", _run(fault("input.pageable_copy", 6e7))),
    Sample(
        "small_buckets",
        "many small all-reduces are latency-bound",
        _run(fault("comm.latency_bound", 900.0, bucket_cap_mb=1.0, recommended_bucket_cap_mb=25.0)),
    ),
    Sample(
        "script_line",
        "the script's own Python runs between the steps",
        _run(fault("host.script", 2.5e4), form=Format(stacks=True)),
    ),
    Sample("barriers", "the script calls barriers in every step", _run(fault("comm.barrier", 30.0))),
    Sample(
        "no_overlap",
        "communication starts too late to overlap with compute",
        _run(fault("comm.no_overlap", 8.0, mode="huge", bucket_cap_mb=1e6, recommended_bucket_cap_mb=25.0)),
    ),
    Sample("bandwidth", "the volume is too large for the link", _run(fault("comm.bandwidth_bound", 60.0))),
    Sample(
        "slow_link",
        "the transfers of one rank are slower than its peers'",
        _run(
            fault("comm.slow_link", 40.0, 2),
            ranks=4,
            hosts=2,
            steps=2,
            model=replace(MODEL, layers=2),
            parallel=Parallel("tpdp", dp=2, tp=2),
        ),
    ),
    Sample(
        "sharding",
        "parameter all-gathers are exposed",
        _run(fault("comm.sharding", 12.0, remedy="reshard"), parallel=Parallel("fsdp", dp=2)),
    ),
    Sample(
        "launch_bound",
        "the device waits for kernel launches",
        _run(
            fault("host.launch_bound", 6.0),
            model=replace(MODEL, unit_us=120.0, params_per_layer=1_000_000),
            loader_us=3e3,
        ),
    ),
    Sample("sync", ".item() calls inside the step", _run(fault("host.sync", 1_500.0))),
    Sample(
        "gc",
        "garbage collection at different moments on different ranks",
        _run(fault("host.gc", 9e3, chance=0.6), steps=5, model=replace(MODEL, layers=2)),
    ),
    Sample("checkpoint", "saving state stops the job", _run(fault("host.checkpoint", 2e4, step=1))),
    Sample("allocator", "device memory is allocated inside steps", _run(fault("host.allocator", 7e3))),
    Sample(
        "full_memory",
        "device memory is nearly full",
        _run(fault("memory.headroom", 7e3), form=Format(memory=True)),
    ),
    Sample(
        "slow_stage",
        "one pipeline stage has more work",
        _run(
            fault("pipeline.imbalance", 1.0, stage=1),
            steps=2,
            model=replace(STAGE, layers=1),
            parallel=replace(PIPELINE, microbatches=16),
        ),
    ),
    Sample(
        "bubble",
        "too few microbatches for the pipeline",
        _run(fault("pipeline.bubble", 2.0, microbatches=2, recommended_microbatches=8), model=STAGE, parallel=PIPELINE),
    ),
    Sample("fp32", "matrix products run in fp32", _run(fault("compute.precision", 2.2), form=Format(shapes=True))),
    Sample(
        "unfused_optimizer",
        "the optimizer runs as many tiny kernels",
        _run(fault("compute.unfused_optimizer", 30.0), steps=2),
    ),
)
