"""Layouts that fit, and what cannot be laid out."""

import pytest

from ddprof.errors import NoUsableInput, UsageError
from ddprof.slices.planning.cluster import cluster
from ddprof.slices.planning.search import best_by_kind, search
from ddprof.slices.planning.shape import Shape


@pytest.mark.parametrize(
    ("shape", "gpu", "world", "batch", "at_least"),
    [
        (Shape(1.3e9, 24, 2048, 1024, 50_257), "A100-40GB", 8, 128, 0.35),
        (Shape(100e9, 80, 10_240, 2048), "A100-80GB", 64, 1024, 0.45),
        (Shape(130e9, 80, 11_520, 2048), "A100-80GB", 128, 2048, 0.50),
    ],
)
def test_the_scenarios_have_an_answer(shape: Shape, gpu: str, world: int, batch: int, at_least: float) -> None:
    found = search(shape, cluster(gpu), world, batch)
    best = found[0]
    assert best.fits and best.mfu >= at_least and best.mfu <= 0.65
    assert best.layout.data * best.layout.tensor * best.layout.pipeline == world
    kinds = best_by_kind(found)
    assert kinds[0] == best and len(kinds) >= 5


def test_what_does_not_fit_and_what_cannot_be_laid_out_is_said() -> None:
    full = search(Shape(6.74e9, 32, 4096, 2048, 32_000), cluster("RTX4090-24GB"), 4, 16)
    small = search(Shape(6.74e9, 32, 4096, 2048, 32_000, optimizer_bytes=6.0), cluster("RTX4090-24GB"), 4, 16)
    assert not any(e.fits for e in full)
    assert small[0].fits and small[0].layout.sharding == "zero3"
    with pytest.raises(UsageError, match="known: A100-80GB"):
        cluster("abacus")
    with pytest.raises(NoUsableInput, match="cannot be divided"):
        search(Shape(7e9, 31, 4096, 2048), cluster("A100-80GB"), 64, 7)
