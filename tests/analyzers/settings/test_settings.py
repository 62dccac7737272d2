"""Settings: as they are typed, as a run has them, what a curve of predictions advises, and what none reaches."""

from dataclasses import replace

import numpy as np
import pytest
from captured import sidecar_of
from labelled_runs import Runs, fires

from ddprof.analyzers.settings import advised
from ddprof.analyzers.settings.buckets import plan_buckets
from ddprof.analyzers.settings.curve import Point, SettingCurve
from ddprof.analyzers.settings.knobs import BY_KEY, KNOBS, Setting, parse_setting
from ddprof.analyzers.settings.loader import plan_loader
from ddprof.analyzers.settings.present import Present, present
from ddprof.errors import NoUsableInput, UsageError

ID = "comm.no_overlap"


def test_every_knob_says_what_it_assumes_and_may_name_ranks() -> None:
    assert len(BY_KEY) == len(KNOBS) and all(knob.words and knob.assumption and knob.values for knob in KNOBS)
    assert parse_setting("compute=1.5@3,7") == Setting("compute", "1.5", (3, 7))
    assert parse_setting("autocast=bf16") == Setting("precision", "bf16")  # as `ddprof run --set` calls it


@pytest.mark.parametrize("written", ["<script>", [], True, float("nan"), None])
def test_captured_settings_that_are_no_numbers_are_not_known(labelled: Runs, written: object) -> None:
    run = labelled("clean.ddp")
    settings = sidecar_of({"dataloader": {"num_workers": written, "prefetch_factor": 3}, "ddp": written})
    found = present(replace(run.measures, settings=settings), {})
    assert (found.num_workers, found.prefetch_factor, found.bucket_cap_mb) == (None, 3, None)
    assert present(replace(run.measures, settings=settings), {"num_workers": 2.0}).num_workers == 2


def test_a_curve_keeps_what_is_as_good_as_the_best() -> None:
    points = tuple(Point(v, us) for v, us in ((1, 200.0), (10, 101.0), (25, 100.0), (50, 101.9), (100, 150.0)))
    assert [p.value for p in SettingCurve("k", points).flat] == [10, 25, 50]
    assert SettingCurve("k", points, now=50).advised((25.0,)).value == 50
    assert SettingCurve("k", points, now=1).advised((100.0, 10.0)).value == 10
    assert SettingCurve("k", points).advised(()).value == 25


def test_buckets_that_no_other_size_beats_are_out_of_reach(labelled: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    run = labelled(ID)
    by_hand = fires(run, ID)
    of_ddp = replace(by_hand, fixes=(replace(by_hand.fixes[0], current="400"),))
    assert advised.out_of_reach(of_ddp, run.pricer) is None  # smaller buckets are faster
    monkeypatch.setattr(advised, "_PLANS", {"bucket_cap_mb": lambda *_: (25.0, True)})
    assert "buckets of other sizes" in (advised.out_of_reach(of_ddp, run.pricer) or "")
    unknown = replace(by_hand, fixes=(replace(by_hand.fixes[0], current=None),))
    assert advised.out_of_reach(unknown, run.pricer) is None  # nobody says that DDP reduces them
    other = replace(of_ddp, changes=(replace(of_ddp.changes[0], kind="rebucket"),))
    assert advised.out_of_reach(other, run.pricer) is None


@pytest.mark.parametrize("name", ["comm.latency_bound", "comm.no_overlap"])
def test_the_advised_cap_is_as_good_as_the_best_of_the_sweep(labelled: Runs, name: str) -> None:
    run = labelled(name)
    truth = {float(k): us for k, us in run.fault["sweep"]["bucket_cap_mb"].items()}
    plan = plan_buckets(run.pricer, Present())
    true_us = float(np.interp(plan.advised_mb, list(truth), list(truth.values())))
    assert true_us <= min(truth.values()) * 1.03 and plan.low_us <= true_us <= plan.high_us
    assert plan.gradient_mb == pytest.approx(87.7, rel=0.01) and plan.caps.best in plan.caps.flat


def test_plans_need_something_to_plan(labelled: Runs) -> None:
    with pytest.raises(NoUsableInput, match="no buckets to plan: no all-reduce"):
        plan_buckets(labelled("clean.fsdp").pricer, Present())
    with pytest.raises(UsageError, match="--now num_workers"):
        plan_loader(labelled("clean.ddp").pricer, Present())
    with pytest.raises(NoUsableInput, match="kept up"):
        plan_loader(labelled("clean.ddp").pricer, Present(num_workers=2))
