"""Units of sharded parameters, read off the order of launches."""

import numpy as np
import pytest
from labelled_runs import Runs

from ddprof.analyzers.job.traffic.units import Units, first_of_block, typical, unit_passes, units_per_block


def _forward(labelled: Runs, name: str) -> Units:
    found = typical(unit_passes(labelled(name).job, 0), is_backward=False)
    assert found is not None
    return found


def test_passes_of_a_sharded_step(labelled: Runs) -> None:
    """Four layers: four units forward, and backward all but the last one, which is still gathered."""
    passes = unit_passes(labelled("clean.fsdp").job, 0)
    assert [units.is_backward for units in passes] == [False, True] * 3
    for units in passes:
        assert (units.gathers >= 0).tolist() == [not units.is_backward, True, True, True]
        assert (units.reductions >= 0).all() == units.is_backward
    assert unit_passes(labelled("clean.ddp").job, 0) == []


def test_compute_belongs_to_the_unit_that_it_needs_or_to_none_before_the_recording(labelled: Runs) -> None:
    """Gathers ahead and gathers when needed: equal layers compute equally long either way."""
    for name in ("clean.fsdp", "gathers when needed"):
        compute = _forward(labelled, name).compute_ns
        assert compute[:3] == pytest.approx(np.full(3, compute[:3].mean()), rel=0.05)
        assert compute[3] > compute[0]  # and the head
    # They run while the host, two steps ahead, launches the gathers of other units.
    forward = _forward(labelled, "three units a layer, hosts ahead")
    assert units_per_block(forward) == 3
    assert forward.compute_ns.max() < 2 * np.median(forward.compute_ns[:3]) + forward.compute_ns[-1]


@pytest.mark.parametrize(("name", "units"), [("clean.fsdp", 1), ("gathers when needed", 1), ("three units a layer", 3)])
def test_units_of_a_block(labelled: Runs, name: str, units: int) -> None:
    forward = _forward(labelled, name)
    assert units_per_block(forward) == units and first_of_block(forward, units) == 0
    assert len(forward.gathers) == 4 * units


@pytest.mark.parametrize(
    ("name", "share"), [("clean.fsdp", 0.0), ("three units a layer", 0.0), ("gathers when needed", 5 / 7)]
)
def test_what_prefetching_would_hide(labelled: Runs, name: str, share: float) -> None:
    """The first gather of each pass cannot be ahead of its unit; where all others are, nothing is left to hide."""
    passes = unit_passes(labelled(name).job, 0)
    exposed = sum(units.exposed_gather_ns.sum() for units in passes)
    assert sum(units.prefetchable_ns for units in passes) / exposed == pytest.approx(share, abs=0.1)
