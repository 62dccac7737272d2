"""Published training runs against the cost model: what `EFFICIENCY` and `HALF_WIDTH` were fitted to, and how well.

All on A100-80GB, 2,048 tokens, vocabulary 51,200. Narayanan et al. 2021 (arXiv 2104.04473), table 1: teraFLOP/s per
device, full recomputation counted, microbatch and chunks not stated, so the model's own best are taken. Korthikanti
et al. 2022 (arXiv 2205.05198), table 5: model FLOPs utilization with sequence parallelism and selective recomputation.
"""

from dataclasses import dataclass

from ddprof.slices.planning.layout import Estimate, Layout, Shape, cluster, estimate


@dataclass(frozen=True)
class PublishedRun:
    """A run as printed: shape, degrees, batch, and the utilization reached (share of peak)."""

    source: str
    params: float
    layers: int
    hidden: int
    tensor: int
    pipeline: int
    devices: int
    batch: int
    utilization: float
    recompute: str
    micro: int | None = None
    chunks: int | None = None


def _megatron(billions: float, *numbers: int) -> PublishedRun:
    return PublishedRun("Narayanan et al. 2021, table 1", billions * 1e9, *numbers[:-1], numbers[-1] / 312, "full")


def _korthikanti(billions: float, used: float, *numbers: int) -> PublishedRun:
    source = "Korthikanti et al. 2022, table 5"
    return PublishedRun(source, billions * 1e9, *numbers[:-2], used, "selective", *numbers[-2:])


RUNS = (
    _megatron(1.7, 24, 2304, 1, 1, 32, 512, 137), _megatron(3.6, 30, 3072, 2, 1, 64, 512, 138),
    _megatron(7.5, 36, 4096, 4, 1, 128, 512, 142), _megatron(18.4, 40, 6144, 8, 1, 256, 1024, 135),
    _megatron(39.1, 48, 8192, 8, 2, 512, 1536, 138), _megatron(76.1, 60, 10240, 8, 4, 1024, 1792, 140),
    _megatron(145.6, 80, 12288, 8, 8, 1536, 2304, 148), _megatron(310.1, 96, 16384, 8, 16, 1920, 2160, 155),
    _megatron(529.6, 105, 20480, 8, 35, 2520, 2520, 163), _megatron(1008.0, 128, 25600, 8, 64, 3072, 3072, 163),
    _korthikanti(22, 0.415, 48, 6144, 8, 1, 8, 4, 4, 1), _korthikanti(175, 0.514, 96, 12288, 8, 8, 64, 64, 1, 3),
    _korthikanti(530, 0.560, 105, 20480, 8, 35, 280, 280, 1, 3),
    _korthikanti(1000, 0.563, 128, 25600, 8, 64, 512, 512, 1, 1),
)  # fmt: skip


def modelled(run: PublishedRun) -> Estimate:
    """The model's estimate of a published run, at its own best microbatch and chunks where they are not stated."""
    shape = Shape(run.params, run.layers, run.hidden, 2048)
    data = run.devices // (run.tensor * run.pipeline)
    micros = (run.micro,) if run.micro else (1, 2, 4, 8)
    chunks = (run.chunks,) if run.chunks else (1, 2, 3, 4) if run.pipeline > 1 else (1,)
    splits = [(m, c) for m in micros for c in chunks if run.batch % (data * m) == 0]
    layouts = [Layout(data, run.tensor, run.pipeline, m, c, "ddp", 1, run.recompute) for m, c in splits]
    found = [estimate(shape, cluster("A100-80GB"), layout, run.batch) for layout in layouts]
    return min((e for e in found if e.fits), key=lambda e: e.step_s, default=min(found, key=lambda e: e.step_s))


def error(run: PublishedRun) -> float:
    """Relative error of the modelled utilization, in the kind the paper prints."""
    again = 4 / 3 if run.recompute == "full" else 1.0  # the paper's hardware utilization counts forward twice
    return again * modelled(run).mfu / run.utilization - 1
