"""Settings: as they are typed, as a run has them, what plans and curves advise, and what none reaches."""

from dataclasses import replace

import numpy as np
import pytest
from captured import sidecar_of, with_sidecars
from labelled_runs import Runs, candidate, fires

from ddprof.analyzers.settings import advised
from ddprof.analyzers.settings.buckets import plan_buckets
from ddprof.analyzers.settings.curve import Point, SettingCurve
from ddprof.analyzers.settings.knobs import BY_KEY, KNOBS, Setting, parse_setting
from ddprof.analyzers.settings.loader import plan_loader
from ddprof.analyzers.settings.present import Present, present
from ddprof.errors import NoUsableInput, UsageError


def test_every_knob_says_what_it_assumes_and_may_name_ranks() -> None:
    assert len(BY_KEY) == len(KNOBS) and all(knob.words and knob.assumption and knob.values for knob in KNOBS)
    assert parse_setting("compute=1.5@3,7") == Setting("compute", "1.5", (3, 7))
    assert parse_setting("autocast=bf16") == Setting("precision", "bf16")  # as `ddprof run --set` calls it


@pytest.mark.parametrize("written", ["<script>", [], True, float("nan"), None])
def test_captured_settings_that_are_no_numbers_are_not_known(labelled: Runs, written: object) -> None:
    settings = sidecar_of({"dataloader": {"num_workers": written, "prefetch_factor": 3}, "ddp": written})
    measures = replace(labelled("clean.ddp").measures, settings=settings)
    known = present(measures, {})
    assert (known.num_workers, known.prefetch_factor, known.bucket_cap_mb) == (None, 3, None)
    assert present(measures, {"num_workers": 2.0}).num_workers == 2


def test_a_curve_keeps_what_is_as_good_as_the_best() -> None:
    points = tuple(map(Point, (1, 10, 25, 50, 100), (200.0, 101.0, 100.0, 101.9, 150.0)))
    assert [p.value for p in SettingCurve("k", points).flat] == [10, 25, 50]
    assert SettingCurve("k", points, now=50).advised((25.0,)).value == 50
    assert SettingCurve("k", points, now=1).advised((100.0, 10.0)).value == 10
    assert SettingCurve("k", points).advised(()).value == 25


def test_buckets_that_no_other_size_beats_are_out_of_reach(labelled: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    run = labelled("comm.no_overlap")
    by_hand = fires(run, "comm.no_overlap")
    of_ddp, unknown = (replace(by_hand, fixes=(replace(by_hand.fixes[0], current=now),)) for now in ("400", None))
    assert advised.out_of_reach(of_ddp, run.pricer) is None  # smaller buckets are faster
    monkeypatch.setattr(advised, "_PLANS", {"bucket_cap_mb": lambda *_: (25.0, True)})
    assert "buckets of other sizes" in (advised.out_of_reach(of_ddp, run.pricer) or "")
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
    for now, error, says in ((None, UsageError, "--now num_workers"), (2, NoUsableInput, "kept up")):
        with pytest.raises(error, match=says):
            plan_loader(labelled("clean.ddp").pricer, Present(num_workers=now))


def test_the_advised_workers_are_as_good_as_the_best_of_the_sweep(labelled: Runs) -> None:
    run = labelled("input.starved")
    truth = {int(k): us for k, us in run.fault["sweep"]["num_workers"].items()}
    plan = plan_loader(run.pricer, Present(num_workers=2))
    assert truth[plan.advised_workers] <= min(truth.values()) * 1.03 and plan.advised_workers <= 8
    assert plan.kind is None and plan.source == "arrivals"


@pytest.mark.parametrize(
    ("what", "cpu_share", "cores", "said"),
    [
        *(("remote store", 0.0, 4, "num_workers"), ("remote store, few cores", 0.02, 1, "num_workers")),
        *(("cores", 1.0, 4, "cores of this host cannot"), ("lock", 0.0, 64, "a separate file")),
    ],
)
def test_plan_and_report_agree_on_what_workers_win(
    labelled: Runs, what: str, cpu_share: float, cores: int, said: str
) -> None:
    run = labelled("input.starved")
    fetching = {"workers": 2, "fetch_ns": 180_000_000, "samples": 32, "cpu_ns": int(180_000_000 * cpu_share) or 1}
    fetching |= {"turn_ns": 90_000_000} if what == "lock" else {}
    processors = {"usable": cores, "local_ranks": len(run.job.ranks)}
    given = with_sidecars(run, {"fetching": fetching, "dataloader": {"num_workers": 2}, "processors": processors})
    plan = plan_loader(replace(run.pricer, measures=given, _known_us={}), Present(num_workers=2, cores=cores))
    finding = candidate("input.starved", given)
    counts = [int(f.suggested) for f in finding.fixes if f.setting == "num_workers"]
    assert (counts[0] if counts else 2) == plan.advised_workers
    told = " ".join(f.why for f in finding.fixes)
    assert ("cores of this host" in told) == (what == "cores")  # a fetch that waits needs no core
    assert any(said in f"{f.setting} {f.suggested} {f.why}" for f in finding.fixes)
    if what == "lock":
        assert not counts and min(p.step_us for p in plan.workers.points if p.value) >= plan.step_us * 0.999
        assert plan.advised_workers == 2 and plan.turn_us == 90_000
    else:
        assert (plan.advised_workers <= cores) == (what == "cores")
