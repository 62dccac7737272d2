"""Plans: laws of links and layouts, what fits, what a run becomes with more ranks or other sharding; `ddprof plan`."""

import json

import numpy as np
import pytest
from labelled_runs import Runs
from published import RUNS, error, modelled

from ddprof.errors import NoUsableInput
from ddprof.report.model import Training
from ddprof.slices.planning import sharding as scaling
from ddprof.slices.planning.layout import (
    BAND,
    Layout,
    Shape,
    best_by_kind,
    cluster,
    estimate,
    parameters_of,
    search,
    state_bytes,
)
from ddprof.slices.planning.sharding import plan_sharding, scale_out

A100 = cluster("A100-80GB")
SCENARIOS = [
    (Shape(1.3e9, 24, 2048, 1024, 50_257), "A100-40GB", 8, 128, 0.35),
    (Shape(100e9, 80, 10_240, 2048), "A100-80GB", 64, 1024, 0.45),
    (Shape(130e9, 80, 11_520, 2048), "A100-80GB", 128, 2048, 0.50),
]
SHAPE = ("--params", "7e9", "--layers", "32", "--hidden", "4096", "--batch", "64")
NO_SENSE = [
    *(((*SHAPE, "--gpu", "abacus"), 2, "known: A100-80GB"), ((*SHAPE, "--optimizer", "hope"), 2, "is not one of")),
    *(((), 2, "--layers, --hidden and --world"), ((*SHAPE, "--params", "1e6"), 2, "fewer than the embedding")),
    *(((*SHAPE, "--params", value), 2, "--params") for value in ("0", "inf", "nan")),
    *(((*SHAPE, "--node-gbps", value), 2, "--node-gbps") for value in ("0", "-100", "nan", "inf")),
    ((*SHAPE, "--layers", "31", "--batch", "7", "--world", "64"), 4, "cannot be divided"),
]


def test_rings_move_their_share() -> None:
    size = 1e9
    inside, across = A100.reduce_s(size, 8, 8), A100.reduce_s(size, 64, 8)
    assert inside == pytest.approx(2 * 7 / 8 * size / (300e9 * 0.8) + 2 * 20e-6, rel=1e-6)
    assert across > inside and A100.gather_s(size, 8, 8) == pytest.approx(inside / 2)
    assert A100.rate(64, 1) == pytest.approx(200e9 / 8 * 0.8) and A100.reduce_s(size, 1, 8) == 0.0


@pytest.mark.parametrize(("stage", "gigabytes"), [("ddp", 120), ("zero1", 31.4), ("zero2", 16.6), ("zero3", 1.9)])
def test_state_is_the_zero_papers_figure_1(stage: str, gigabytes: float) -> None:
    """7.5 B parameters, 64 ranks, K = 12."""
    assert state_bytes(7.5e9, stage, 64) / 1e9 == pytest.approx(gigabytes, rel=0.02)


def test_operations_are_megatrons_formula() -> None:
    """96 B s L h^2 (1 + s / 6h + V / 16 L h) with full recomputation, equation 3."""
    layers, h, s, v = 80, 12288, 2048, 51_200
    exact = 96 * s * layers * h**2 * (1 + s / (6 * h) + v / (16 * layers * h))
    shape = Shape(parameters_of(layers, h, v), layers, h, s, v)
    assert shape.executed_flops("full") == pytest.approx(exact, rel=0.01)
    assert shape.model_flops() == pytest.approx(exact * 3 / 4, rel=0.01)


def test_the_bubble_is_its_formula() -> None:
    shape = Shape(20e9, 48, 6144, 2048)
    plain = estimate(shape, A100, Layout(2, 1, 4, 1, 1), 32)
    assert plain.bubble_s == pytest.approx((plain.compute_s + plain.tensor_s) * 3 / 16, rel=1e-6)
    assert estimate(shape, A100, Layout(2, 1, 4, 1, 2), 32).bubble_s == pytest.approx(plain.bubble_s / 2, rel=0.05)


def test_published_runs_are_met() -> None:
    errors = np.abs([error(run) for run in RUNS])
    assert errors.mean() <= 0.05 and errors.max() <= BAND and all(modelled(run).fits for run in RUNS)
    # Korthikanti et al. 2022, table 5: seconds per iteration; model FLOPs by their equation 7 (appendix A).
    seconds = {22e9: 1.10, 175e9: 13.75, 530e9: 37.83, 1000e9: 71.49}
    checked = [run for run in RUNS if run.recompute == "selective"]
    assert len(checked) == len(seconds)
    for run in checked:
        layers, h, s, v = run.layers, run.hidden, 2048, 51_200
        flops = 72 * run.batch * layers * s * h**2 * (1 + s / (6 * h) + v / (12 * h * layers))
        assert flops / seconds[run.params] / run.devices / 312e12 == pytest.approx(run.utilization, rel=0.005)


@pytest.mark.parametrize(("shape", "gpu", "world", "batch", "at_least"), SCENARIOS)
def test_the_scenarios_have_an_answer(shape: Shape, gpu: str, world: int, batch: int, at_least: float) -> None:
    best, *others = search(shape, cluster(gpu), world, batch)
    assert best.fits and at_least <= best.mfu <= 0.65
    assert best.layout.data * best.layout.tensor * best.layout.pipeline == world
    kinds = best_by_kind([best, *others])
    assert kinds[0] == best and len(kinds) >= 5


def test_what_does_not_fit_and_what_cannot_be_laid_out_is_said() -> None:
    full = search(Shape(6.74e9, 32, 4096, 2048, 32_000), cluster("RTX4090-24GB"), 4, 16)
    small = search(Shape(6.74e9, 32, 4096, 2048, 32_000, optimizer_bytes=6.0), cluster("RTX4090-24GB"), 4, 16)
    assert not any(e.fits for e in full) and small[0].fits and small[0].layout.sharding == "zero3"


def test_more_ranks_never_make_a_rank_faster(labelled: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "training_of", lambda job: Training(learning_rate=0.1, optimizer="AdamW"))
    plan = scale_out(labelled("comm.no_overlap").pricer, (2, 4, 8, 64), per_node=8, node_factor=4.0)
    assert "of 16 times the samples per step the learning rate 0.1 is 0.4 by the square root" in plan.assumptions[0]
    steps = [p.step_us for p in plan.points]
    assert steps == sorted(steps) and next(p for p in plan.points if p.world == 4).step_us == plan.step_us
    assert all(p.low_us <= p.step_us <= p.high_us for p in plan.points)
    assert all((p.in_groups_us is None) == (p.by_server_us is None) == (p.world <= 8) for p in plan.points)
    for nodes, wins in ((2, True), (8, False)):  # with fewer than 4 nodes, as the network is 4 times slower
        point = scale_out(labelled("comm.no_overlap").pricer, (8 * nodes,), 8, 4.0).points[-1]
        assert point.in_groups_us and point.by_server_us and (point.in_groups_us < point.step_us) is wins
        assert point.by_server_us > point.step_us
    with pytest.raises(NoUsableInput, match="nothing to scale"):
        scale_out(labelled("clean.fsdp").pricer, (8,), 8, 4.0)


def test_options_of_a_run_follow_the_formulas_and_an_fsdp_run_is_recognised(labelled: Runs) -> None:
    plan = plan_sharding(labelled("clean.ddp").pricer)
    assert plan.params == pytest.approx(46e6, rel=0.01) and plan.parameter_bytes == 2.0
    states = {o.name: o.state_bytes for o in plan.options}
    assert states["DDP"] == pytest.approx(plan.params * (4 + plan.optimizer_bytes))
    assert states["FSDP / ZeRO-3"] == pytest.approx(states["DDP"] / 4)
    now = next(o for o in plan.options if o.is_now)
    assert now.name == "DDP" and now.step_us == pytest.approx(plan.step_us, rel=0.03)
    assert plan.compression.half_saves_us <= plan.compression.exposed_us + 1
    assert next(o.name for o in plan_sharding(labelled("clean.fsdp").pricer).options if o.is_now) == "FSDP / ZeRO-3"


def test_plans_print_a_curve_and_json_and_a_setting_without_a_value_is_refused(ddprof, sample) -> None:
    asked = ("plan", "loader", sample("starved_loader"), "--now", "num_workers=2")
    code, out, _ = ddprof(*asked)
    assert code == 0 and "num_workers" in out and "advised" in out
    document = json.loads(ddprof(*asked, "--format", "json")[1])
    assert document["schema"] == "ddprof.plan.loader/1" and document["advised_workers"] >= 1
    assert document["workers"]["best"] in document["workers"]["flat"]
    code, out, err = ddprof("plan", "buckets", sample("starved_loader"), "--now", "bucket_cap_mb")
    assert (code, out) == (2, "") and "KEY=VALUE" in err and len(err.strip().splitlines()) == 1


@pytest.mark.parametrize("kind", ["scale", "sharding"])
def test_a_model_without_a_run_is_planned(ddprof, kind: str) -> None:
    code, out, _ = ddprof("plan", kind, *SHAPE, "--world", "16")
    assert code == 0 and "MFU" in out and "assumed:" in out and "does not fit" in out
    document = json.loads(ddprof("plan", kind, *SHAPE, "--world", "16", "--format", "json")[1])
    assert document["schema"] == f"ddprof.plan.{kind}/1" and document["layouts"][0]["fits"]
    if kind == "sharding":
        assert all(item["layout"]["tensor"] == item["layout"]["pipeline"] == 1 for item in document["layouts"])


@pytest.mark.parametrize(("arguments", "code", "says"), NO_SENSE)
def test_plans_that_make_no_sense_are_one_line(ddprof, arguments: tuple[str, ...], code: int, says: str) -> None:
    ended, out, err = ddprof("plan", "scale", "--world", "16", *arguments)
    assert (ended, out) == (code, "") and says in err


def test_a_run_is_scaled_and_sharded(ddprof, sample) -> None:
    code, out, _ = ddprof("plan", "scale", sample("no_overlap"), "--world", "16")
    assert code == 0 and "now" in out and "assumed:" in out
    code, out, _ = ddprof("plan", "sharding", sample("no_overlap"))
    assert code == 0 and "* DDP" in out and "gradient compression" in out
