"""Models of transfers, groups and links that are slow for one message, units of sharded parameters, statistics."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kineto_run import Script, loaded
from labelled_runs import Runs, run_of, sample_run

from ddprof.analyzers.execution.choose import DEVICE
from ddprof.analyzers.facts.kernels import with_steps
from ddprof.analyzers.facts.names import OP_CODE
from ddprof.analyzers.job.model import INSTANCES, MEMBERS, JobFacts, Pipeline
from ddprof.analyzers.job.traffic.cost import fit_cost, transfer_curve
from ddprof.analyzers.job.traffic.stage_links import message_ends, slow_groups, stage_links
from ddprof.analyzers.job.traffic.statistics import comm_stats, takes_its_bytes, with_known_transfer
from ddprof.analyzers.job.traffic.units import Units, first_of_block, typical, unit_passes, units_per_block
from ddprof.tables import NULL

MESSAGES = np.repeat(np.array([2**k for k in range(10, 26)], np.int64), 3)


@given(st.floats(1e3, 1e6), st.floats(0.5, 500.0))
def test_exact_points_give_their_own_model(alpha_ns: float, bytes_per_ns: float) -> None:
    model = fit_cost(MESSAGES, alpha_ns + MESSAGES / bytes_per_ns)
    assert model is not None
    for size in (2**20, 2**24):
        assert model.time_ns(size) == pytest.approx(alpha_ns + size / bytes_per_ns, rel=1e-3)


def test_noise_moves_the_model_little_and_latency_is_all_of_equal_times_and_never_negative() -> None:
    model = fit_cost(MESSAGES, (50_000 + MESSAGES / 100.0) * np.random.default_rng(0).normal(1.0, 0.05, len(MESSAGES)))
    assert model is not None and model.alpha_ns == pytest.approx(50_000, rel=0.1)
    assert model.bytes_per_ns == pytest.approx(100.0, rel=0.1)
    model = fit_cost(MESSAGES, np.full(len(MESSAGES), 80_000.0))
    assert model is not None and model.alpha_ns == pytest.approx(80_000)
    assert model.time_ns(2**30) == pytest.approx(80_000, rel=1e-3)
    model = fit_cost(MESSAGES, MESSAGES.astype(float) ** 1.1)
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


SIZES = np.tile([1.0, 25.0, 25.0, 6.0], 4) * 2**20
TIMES = 40.0 + SIZES / 10_000.0  # us: a latency, and 10 GB/s


@pytest.mark.parametrize(("share", "is_whole"), [(0.2, True), (0.8, False)])
def test_traffic_of_which_most_calls_are_missing_is_not_whole(labelled: Runs, share: float, is_whole: bool) -> None:
    job = labelled("comm.bandwidth_bound").job
    rows = np.flatnonzero(job.instances["op"] == OP_CODE["all_reduce"])
    complete = job.instances["complete"].copy()
    complete[rows[: round(share * len(rows))]] = False
    stats = comm_stats(replace(job, instances=job.instances.replace(complete=complete)), {})
    assert (max((t for t in stats.traffic if t.op == "all_reduce"), key=lambda t: t.total_bytes)).is_whole == is_whole


def test_bytes_at_one_rate_explain_small_and_large_messages() -> None:
    assert takes_its_bytes(SIZES, TIMES) and takes_its_bytes(SIZES, TIMES * np.linspace(1.0, 1.05, len(SIZES)))


@pytest.mark.parametrize("which", [SIZES > 0, SIZES == 2**20, np.arange(len(SIZES)) == 3])
def test_lateness_at_every_call_at_the_first_or_once_is_not_explained(which: np.ndarray) -> None:
    assert not takes_its_bytes(SIZES, TIMES + 6_000.0 * which)


def test_equal_messages_few_ones_and_unknown_sizes_prove_nothing() -> None:
    assert not takes_its_bytes(SIZES[1::4], TIMES[1::4])
    assert not takes_its_bytes(np.full(16, 2.0**20), np.full(16, 145.0))
    assert not takes_its_bytes(SIZES[:7], TIMES[:7]) and not takes_its_bytes(np.zeros(16), TIMES)


def test_one_rank_tells_its_transfers_unless_it_waits_in_them(labelled: Runs) -> None:
    assert with_known_transfer(labelled("comm.bandwidth_bound").only(2).job).all()
    assert not with_known_transfer(labelled("straggler.compute").only(0).job).any()
    assert with_known_transfer(labelled("straggler.compute").job).all()
    assert with_known_transfer(labelled("comm.latency_bound").only(0).job).all()  # buckets of one duration
    of_slow_host = labelled("straggler.host")  # which waits for nobody itself
    assert [with_known_transfer(of_slow_host.only(rank).job).any() for rank in range(4)] == [False, True, False, False]


def test_the_exposed_time_of_communications_at_once_is_counted_once(tmp_path: Path) -> None:
    scripts = [Script(), Script()]
    for script in scripts:
        for _ in script.steps(4):
            script.launch(dur_us=100.0, times=10)
            begin_us = script.free_us + 10
            for stream in (20, 21):  # two groups of the same ranks
                script.free_us = begin_us
                script.reduce(begin_us + 2_000)
                script.events[-1]["tid"] = script.events[-1]["args"]["stream"] = stream
                script.events[-1]["args"]["Process Group Name"] = str(stream)
            script.synchronise()
    measures = loaded(scripts, tmp_path).measures
    assert measures.comm.exposed_us == pytest.approx(measures.cause_us("comm_transfer").mean()) == pytest.approx(2_000)
    (traffic,) = measures.comm.traffic
    assert (traffic.transfer_us, traffic.hidden_share) == (pytest.approx(4_000), 0.0)  # neither is under compute


def test_traffic_sums_to_the_transfer_of_the_ledger() -> None:
    measures = sample_run("slow_link").measures
    assert measures.comm.exposed_us == pytest.approx(measures.cause_us("comm_transfer").mean())


FAST, SLOW = 100_000, 300_000
Link = tuple[int, int, int, int]  # two ranks, transfer (ns), bytes


def job(*links: Link, hosts: str = "aaaa", late_ns: int = 50_000, stages: Any = None, until_ns: int = 10**9) -> Any:
    """Six messages per link; the first rank of each is early by `late_ns`. The two steps end at `until_ns`."""
    sizes, rows = [], []
    for a, b, transfer, size in links:
        for _ in range(6):
            at = 1_000_000 * len(sizes)
            rows += [(len(sizes), p, len(sizes), begun, at + transfer) for p, begun in ((a, at - late_ns), (b, at))]
            sizes.append(size)
    steps = np.array([-(10**9), 0]), np.array([0, until_ns])
    names = ("instance", "rank", "comm", "start_ns", "end_ns")
    members = {name: [row[i] for row in rows] for i, name in enumerate(names)}
    alike = {"op": 9, "group": 0, "is_message": True, "members": 2, "transfer_ns": 1, "complete": True, "late": 0}
    instances = {name: [value] * len(sizes) for name, value in alike.items()}
    return SimpleNamespace(
        instances=INSTANCES.table(instances | {"size_bytes": sizes}),
        members=MEMBERS.table({**members, "ready_ns": members["start_ns"]}),
        ranks=(SimpleNamespace(steps=SimpleNamespace(bounds=steps), device=SimpleNamespace(name=None)),) * len(hosts),
        clock=SimpleNamespace(domain_of=tuple(hosts)),
        pipeline=SimpleNamespace(stages=stages) if stages else None,
        per_step_ns=(1, 1),
    )


def test_the_slow_pair_is_named_by_the_ends_of_its_messages_and_costs_time_in_steps() -> None:
    compared, slow = stage_links(job((0, 1, FAST, 8), (1, 2, SLOW, 8), (2, 3, FAST, 8)))
    assert compared == 3 and slow is not None
    assert (slow.pairs, slow.culprits, slow.ratio) == (((1, 2),), (1, 2), pytest.approx(3.0))
    assert slow.excess_us == pytest.approx(6 / 2 * (SLOW - FAST) / 1e3)
    assert stage_links(job()) == (0, None) and all(len(ends) == 0 for ends in message_ends(job()))
    assert np.array_equal(message_ends(job((2, 1, FAST, 8))), [[1] * 6, [2] * 6])
    _, slow = stage_links(job((1, 2, SLOW, 8), (0, 1, FAST, 8), (2, 3, FAST, 8), until_ns=2_900_000))
    assert slow is not None and slow.excess_us == pytest.approx(3 / 2 * (SLOW - FAST) / 1e3)


@pytest.mark.parametrize(
    ("slow_links", "hosts", "culprits"),
    [
        ([(0, 1, SLOW, 8), (1, 2, SLOW, 8), (2, 3, FAST, 8), (3, 4, FAST, 8)], "aaaaa", (1,)),  # all of one rank
        ([(0, 1, FAST, 8), (1, 2, SLOW, 8), (2, 3, FAST, 8)], "aabb", None),  # between hosts, the others inside one
        ([(0, 1, FAST, 8), (1, 2, 20 * FAST, 8), (2, 3, FAST, 8)], "aabb", None),  # as a usual network is slower
        ([(0, 1, FAST, 8), (1, 2, 60 * FAST, 8), (2, 3, FAST, 8)], "aabb", (1, 2)),  # slower than any
        ([(0, 1, FAST, 8), (1, 2, SLOW, 24), (2, 3, FAST, 8)], "aaaa", None),  # other messages
    ],
)
def test_who_is_named_of_slow_links(slow_links: list[Link], hosts: str, culprits: tuple[int, ...] | None) -> None:
    slow = stage_links(job(*slow_links, hosts=hosts))[1]
    assert (slow and slow.culprits) == culprits


def test_without_sizes_only_replicas_of_one_boundary_or_far_slower_links_compare() -> None:
    stages = ((0, 1), (2, 3), (4, 5))
    links = [(0, 2, FAST, NULL), (1, 3, FAST, NULL), (2, 4, SLOW, NULL), (3, 5, SLOW, NULL)]
    assert stage_links(job(*links, hosts="aaaaaa", stages=stages)) == (4, None)
    links[3] = (3, 5, FAST, NULL)
    _, slow = stage_links(job(*links, hosts="aaaaaa", stages=stages))
    assert slow is not None and slow.culprits == (2, 4)
    for factor, culprits in (20, None), (60, (4, 5)):  # slower inside a host than any network
        slow = stage_links(job((2, 3, FAST, NULL), (4, 5, factor * FAST, NULL), hosts="aaaaaa", stages=stages[:2]))[1]
        assert (slow and slow.culprits) == culprits
