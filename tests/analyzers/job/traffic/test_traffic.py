"""Models of transfers, groups that are slow for the same message, and units of sharded parameters."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from labelled_runs import Runs, run_of, sample_run

from ddprof.analyzers.execution.choose import DEVICE
from ddprof.analyzers.facts.kernels import with_steps
from ddprof.analyzers.job.model import JobFacts, Pipeline
from ddprof.analyzers.job.traffic.cost import fit_cost
from ddprof.analyzers.job.traffic.links import slow_groups
from ddprof.analyzers.job.traffic.transfer_curve import transfer_curve
from ddprof.analyzers.job.traffic.units import Units, first_of_block, typical, unit_passes, units_per_block
from ddprof.tables import NULL

SIZES = np.repeat(np.array([2**k for k in range(10, 26)], np.int64), 3)


@given(st.floats(1e3, 1e6), st.floats(0.5, 500.0))
def test_exact_points_give_their_own_model(alpha_ns: float, bytes_per_ns: float) -> None:
    model = fit_cost(SIZES, alpha_ns + SIZES / bytes_per_ns)
    assert model is not None
    for size in (2**20, 2**24):
        assert model.time_ns(size) == pytest.approx(alpha_ns + size / bytes_per_ns, rel=1e-3)


def test_noise_moves_the_model_little_and_latency_is_all_of_equal_times_and_never_negative() -> None:
    model = fit_cost(SIZES, (50_000 + SIZES / 100.0) * np.random.default_rng(0).normal(1.0, 0.05, len(SIZES)))
    assert model is not None and model.alpha_ns == pytest.approx(50_000, rel=0.1)
    assert model.bytes_per_ns == pytest.approx(100.0, rel=0.1)
    model = fit_cost(SIZES, np.full(len(SIZES), 80_000.0))
    assert model is not None and model.alpha_ns == pytest.approx(80_000)
    assert model.time_ns(2**30) == pytest.approx(80_000, rel=1e-3)
    model = fit_cost(SIZES, SIZES.astype(float) ** 1.1)
    assert model is not None and model.alpha_ns >= 0


@pytest.mark.parametrize(
    ("sizes", "times"), [(np.full(40, 2**20), np.full(40, 60_000.0)), (np.array([0, 2**20]), np.array([5_000.0, 0.0]))]
)
def test_one_size_or_no_usable_point_says_nothing(sizes: np.ndarray, times: np.ndarray) -> None:
    assert fit_cost(sizes, times) is None


MIB = 2.0**20


def test_a_curve_interpolates_its_points_follows_the_line_beyond_and_says_that_it_guesses() -> None:
    sizes = np.array([1, 4, 16, 64]) * MIB
    curve = transfer_curve(sizes, 50e3 + sizes / 10, DEVICE.limits.transfer_prior)
    assert curve is not None and not curve.is_prior
    for size, rel in ((1, 1e-6), (4, 1e-6), (64, 1e-6), (8, 0.05), (256, 0.02)):
        assert curve.time_ns(size * MIB) == pytest.approx(50e3 + size * MIB / 10, rel=rel)
    assert curve.time_ns(0) == 0.0
    curve = transfer_curve(np.full(3, 8 * MIB), np.full(3, 1e6), DEVICE.limits.transfer_prior)
    assert curve is not None and curve.is_prior and curve.time_ns(8 * MIB) == pytest.approx(1e6)
    assert transfer_curve(np.zeros(2), np.ones(2), DEVICE.limits.transfer_prior) is None


@pytest.mark.parametrize("kept", [0, 1])
def test_transfers_of_a_step_that_is_left_out_cost_no_step_time(kept: int) -> None:
    whole = sample_run("slow_link").job
    cut = run_of([with_steps(facts, np.array([kept])) for facts in whole.ranks]).job
    excess_us = {slow.role: slow.excess_us for slow in slow_groups(cut)}
    assert excess_us == pytest.approx({slow.role: slow.excess_us for slow in slow_groups(whole)}, rel=0.02)


def without_sizes(job: JobFacts, **changes: Any) -> JobFacts:
    return replace(job, instances=job.instances.replace(size_bytes=np.full(len(job.instances), NULL)), **changes)


def test_without_sizes_groups_that_call_more_often_send_other_messages(labelled: Runs) -> None:
    job = labelled("clean.tpdp").job  # without names, groups of one size may serve anything
    nameless = job.groups.replace(role=np.full(len(job.groups), "", dtype=object))
    assert not slow_groups(without_sizes(job, groups=nameless))


def test_without_sizes_groups_of_other_stages_send_other_messages() -> None:
    job = sample_run("slow_link").job  # groups of ranks (0, 1), (2, 3) and of (0, 2), (1, 3)
    assert {slow.role for slow in slow_groups(without_sizes(job))} == {"dp", "tp"}
    across = without_sizes(job, pipeline=Pipeline(((0, 2), (1, 3)), microbatches=8))
    assert {slow.role for slow in slow_groups(across)} == {"tp"}


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


@pytest.mark.parametrize("name, share", [("clean.fsdp", 0), ("three units a layer", 0), ("gathers when needed", 5 / 7)])
def test_what_prefetching_would_hide(labelled: Runs, name: str, share: float) -> None:
    """The first gather of each pass cannot be ahead of its unit; where all others are, nothing is left to hide."""
    passes = unit_passes(labelled(name).job, 0)
    exposed = sum(units.exposed_gather_ns.sum() for units in passes)
    assert sum(units.prefetchable_ns for units in passes) / exposed == pytest.approx(share, abs=0.1)
