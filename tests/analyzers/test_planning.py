"""Planning: settings against the generator's own step at those settings, and the schedules against their formulas."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from labelled_runs import Labelled, Runs

from ddprof.analyzers.bottleneck import bottleneck
from ddprof.analyzers.job.traffic.transfer_curve import transfer_curve
from ddprof.analyzers.planning.facts import parse_now, present
from ddprof.analyzers.planning.knobs import BY_KEY, KNOBS, Setting, parse_setting
from ddprof.analyzers.planning.predict import Prediction, predict
from ddprof.analyzers.replay.changes.loader_queue import paced_step_ns
from ddprof.errors import UsageError
from ddprof.findings import Change

MIB = 2.0**20


def predicted(run: Labelled, *settings: str, now: dict[str, str] | None = None) -> Prediction:
    """The prediction for `KEY=VALUE` settings of a labelled run."""
    stated = present(run.measures, parse_now(now or {}))
    return predict(run.pricer, [parse_setting(text) for text in settings], stated)


@pytest.mark.parametrize(
    ("name", "knob", "error"),
    [
        ("comm.latency_bound", "bucket_cap_mb", 0.04),
        ("comm.no_overlap", "bucket_cap_mb", 0.01),
        ("input.starved", "num_workers", 0.03),
        ("pipeline.bubble", "microbatches", 0.04),
    ],
)
def test_settings_give_the_generators_step(labelled: Runs, name: str, knob: str, error: float) -> None:
    """The latency run holds no message above 1 MiB: larger ones are extrapolated."""
    run = labelled(name)
    now = {"num_workers": "2"} if knob == "num_workers" else {}
    for value, true_us in run.label["faults"][0]["sweep"][knob].items():
        assert predicted(run, f"{knob}={value}", now=now).after_us == pytest.approx(true_us, rel=error), value


def test_the_range_holds_the_truth(labelled: Runs) -> None:
    run = labelled("comm.latency_bound")
    for value, true_us in run.label["faults"][0]["sweep"]["bucket_cap_mb"].items():
        found = predicted(run, f"bucket_cap_mb={value}")
        assert found.low_us <= true_us <= found.high_us


def test_faster_links_help_other_buckets_too(labelled: Runs) -> None:
    run = labelled("comm.latency_bound")
    one, both = predicted(run, "bucket_cap_mb=25"), predicted(run, "bucket_cap_mb=25", "bandwidth=2")
    swapped = predicted(run, "bandwidth=2", "bucket_cap_mb=25")
    assert both.after_us < one.after_us < one.before_us
    assert both.after_us == swapped.after_us
    assert [level.key for level in both.levels] == ["bucket_cap_mb", "bandwidth"]


def test_workers_and_prefetch_are_one_loader(labelled: Runs) -> None:
    run = labelled("input.starved")
    both = predicted(run, "num_workers=4", "prefetch_factor=3", now={"num_workers": "2", "cores": "8"})
    assert [change.values for change in both.changes] == [(4.0, 3.0, 2.0, 8.0)]
    assert both.after_us <= predicted(run, "num_workers=4", now={"num_workers": "2"}).after_us * 1.001


def test_the_same_wish_twice_is_granted_once(labelled: Runs) -> None:
    run = labelled("input.starved")
    ready = Change("instant_loader")
    assert run.pricer.step_us((ready, ready)) == run.pricer.step_us((ready,))
    workers = predicted(run, "num_workers=4", now={"num_workers": "2"})
    assert bottleneck(run.pricer, workers.changes).id == "compute"


def test_removing_a_rank_from_the_wait_gives_the_healthy_step(labelled: Runs) -> None:
    run = labelled("straggler.compute")
    for text in ("device=replaced@2", "late=off@2", "compute=1.3@2"):
        assert predicted(run, text).after_us == pytest.approx(run.label["counterfactual_step_us"], rel=0.04), text


def test_what_is_left_is_named(labelled: Runs) -> None:
    run = labelled("straggler.compute")
    assert bottleneck(run.pricer, ()).id == "straggler.compute"
    assert bottleneck(run.pricer, predicted(run, "device=replaced@2").changes).id == "compute"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("foo=1", "known: bandwidth"),
        ("bandwidth", "KEY=VALUE"),
        ("bandwidth=fast", "a number"),
        ("bandwidth=nan", "a number"),
        ("loader=on", "the only value is ready"),
        ("balance=on@1", "single ranks"),
        ("compute=2@99", "no rank 99"),
        ("compute=2@x", "ranks are written"),
        ("late=off", "which ranks"),
        ("microbatches=4", "no pipeline"),
        ("num_workers=4", "--now num_workers"),
        ("reshard_after_forward=False", "no all-gather"),
        ("precision=int1", "one of"),
    ],
)
def test_nonsense_is_one_line(labelled: Runs, text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as told:
        predicted(labelled("straggler.compute"), text)
    assert "\n" not in str(told.value)


def test_every_knob_says_what_it_assumes() -> None:
    assert len(BY_KEY) == len(KNOBS)
    assert all(knob.words and knob.assumption and knob.values and 0 < knob.band <= 0.5 for knob in KNOBS)


def test_a_setting_may_name_ranks() -> None:
    assert parse_setting("compute=1.5@3,7") == Setting("compute", "1.5", (3, 7))


@pytest.mark.parametrize(("workers", "step"), [(0, 100 + 300), (1, 300), (2, 150), (3, 100), (8, 100)])
def test_the_loaders_pace_is_its_closed_form(workers: int, step: float) -> None:
    """max(t_step, t_batch / W), and everything in series without workers."""
    costs = [np.array([300e3]), np.array([60e3])]
    assert paced_step_ns(100e3, costs, workers, 2, np.array([70e3, 70e3])) == pytest.approx(step * 1e3, rel=0.01)


def test_a_late_loader_costs_nothing_while_another_rank_has_more_work() -> None:
    costs, busy = [np.array([60e3]), np.zeros(1)], np.array([20e3, 90e3])
    assert paced_step_ns(100e3, costs, 0, 2, busy) == pytest.approx(100e3)


def test_prefetch_covers_slow_batches() -> None:
    uneven = [np.array([50e3] * 9 + [600e3])]
    assert paced_step_ns(100e3, uneven, 2, 8, np.array([100e3])) < paced_step_ns(100e3, uneven, 2, 1, np.array([100e3]))


def test_a_curve_interpolates_its_points_and_follows_the_line_beyond() -> None:
    sizes = np.array([1, 4, 16, 64]) * MIB
    curve = transfer_curve(sizes, 50e3 + sizes / 10, True)
    assert curve is not None and not curve.is_prior
    for size in (1, 4, 64):
        assert curve.time_ns(size * MIB) == pytest.approx(50e3 + size * MIB / 10, rel=1e-6)
    assert curve.time_ns(8 * MIB) == pytest.approx(50e3 + 8 * MIB / 10, rel=0.05)
    assert curve.time_ns(256 * MIB) == pytest.approx(50e3 + 256 * MIB / 10, rel=0.02)
    assert curve.time_ns(0) == 0.0


def test_one_size_gives_a_curve_that_says_it_guesses() -> None:
    curve = transfer_curve(np.full(3, 8 * MIB), np.full(3, 1e6), True)
    assert curve is not None and curve.is_prior
    assert curve.time_ns(8 * MIB) == pytest.approx(1e6)
    assert transfer_curve(np.zeros(2), np.ones(2), True) is None


@pytest.mark.parametrize("written", ["<script>", [], True, float("nan"), None])
def test_captured_settings_that_are_no_numbers_are_not_known(labelled: Runs, written: object) -> None:
    run = labelled("clean.ddp")
    settings = {"dataloader": {"num_workers": written, "prefetch_factor": 3}, "ddp": written}
    found = present(replace(run.measures, settings=settings), {})
    assert (found.num_workers, found.prefetch_factor, found.bucket_cap_mb) == (None, 3, None)
    assert present(replace(run.measures, settings=settings), {"num_workers": 2.0}).num_workers == 2
