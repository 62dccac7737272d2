"""All sensible layouts of a model over N devices, the fastest that fits first."""

from __future__ import annotations

from collections.abc import Iterator

from ddprof.errors import NoUsableInput
from ddprof.slices.planning.cluster import Cluster
from ddprof.slices.planning.layout import EFFICIENCY, Estimate, Layout, estimate
from ddprof.slices.planning.shape import RECOMPUTE, Shape

MICRO = (1, 2, 4, 8)
CHUNKS = (1, 2, 3, 4)
MAX_STAGES = 64  # of a pipeline


def layouts(shape: Shape, on: Cluster, world: int, batch: int) -> Iterator[Layout]:
    """Layouts whose degrees divide the model, the batch and the devices; tensor ranks stay in a node."""
    for tensor in (t for t in (1, 2, 4, 8, 16) if t <= on.per_node and world % t == 0 and shape.hidden % t == 0):
        for pipeline in (p for p in range(1, MAX_STAGES + 1) if (world // tensor) % p == 0 and shape.layers % p == 0):
            data = world // tensor // pipeline
            for micro in (m for m in MICRO if batch % (data * m) == 0):
                for chunks in _chunks(shape, pipeline, batch // (data * micro)):
                    for sharding, shard in _shardings(on, data, tensor, pipeline):
                        for recompute in RECOMPUTE:
                            yield Layout(data, tensor, pipeline, micro, chunks, sharding, shard, recompute)


def _chunks(shape: Shape, pipeline: int, microbatches: int) -> list[int]:
    """Chunks per stage: interleaving needs whole layers per chunk and microbatches in multiples of the stages."""
    if pipeline == 1:
        return [1]
    return [c for c in CHUNKS if c == 1 or (shape.layers % (pipeline * c) == 0 and microbatches % pipeline == 0)]


def _shardings(on: Cluster, data: int, tensor: int, pipeline: int) -> list[tuple[str, int]]:
    if data == 1:
        return [("ddp", 1)]
    shardings = [("ddp", 1), ("zero1", data)]
    if pipeline == 1:  # stages 2 and 3 would reduce or gather for every microbatch of a pipeline
        shardings += [("zero2", data), ("zero3", data)]
        near = max(1, on.per_node // tensor)
        if near < data and data % near == 0 and near > 1:
            shardings.append(("zero3", near))
    return shardings


def search(shape: Shape, on: Cluster, world: int, batch: int, efficiency: float = EFFICIENCY) -> list[Estimate]:
    """Every layout's estimate: fitting ones first, the fastest first. Raises NoUsableInput where none divides."""
    estimates = [estimate(shape, on, layout, batch, efficiency) for layout in layouts(shape, on, world, batch)]
    if not estimates:
        raise NoUsableInput(
            f"a batch of {batch} sequences and {shape.layers} layers cannot be divided over {world} devices"
        )
    return sorted(estimates, key=lambda e: (not e.fits, e.step_s if e.fits else e.memory_bytes))


def best_by_kind(estimates: list[Estimate]) -> list[Estimate]:
    """The best of each sharding with each use of tensor and pipeline ranks, in the order of `estimates`."""
    kinds: dict[tuple[str, bool, bool, bool], Estimate] = {}
    for item in estimates:
        one = item.layout
        key = (one.sharding, one.shard < one.data and one.sharding == "zero3", one.tensor > 1, one.pipeline > 1)
        kinds.setdefault(key, item)
    return list(kinds.values())
