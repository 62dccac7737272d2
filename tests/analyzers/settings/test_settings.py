"""Settings: as they are typed, as a run has them, what plans and curves advise, what is offered, what they give."""

from dataclasses import replace
from pathlib import Path

import corpus
import numpy as np
import pytest
from captured import sidecar_of, with_sidecars
from labelled_runs import Labelled, Runs, candidate, drawn, fires, sample_run

from benchmarks.oracle.simulate import step_time
from benchmarks.oracle.spec import Parallel
from ddprof.analyzers import diagnose
from ddprof.analyzers.bottleneck import bottleneck
from ddprof.analyzers.settings import advised
from ddprof.analyzers.settings.curves import Point, SettingCurve, plan_buckets, plan_loader
from ddprof.analyzers.settings.knobs import BY_KEY, KNOBS, Setting, parse_setting
from ddprof.analyzers.settings.predict import Prediction, applied_as, offers, predict, remedies, text_of
from ddprof.analyzers.settings.present import Present, parse_now, present
from ddprof.errors import NoUsableInput, UsageError
from ddprof.findings import Abstention, Change, Fix


def test_every_knob_says_what_it_assumes_and_may_name_ranks() -> None:
    assert len(BY_KEY) == len(KNOBS) and all(knob.words and knob.assumption and knob.values for knob in KNOBS)
    assert parse_setting("compute=1.5@3,7") == Setting("compute", "1.5", (3, 7))
    assert parse_setting("autocast=bf16") == Setting("precision", "bf16")  # as `ddprof run --set` calls it


@pytest.mark.parametrize("written", ["<script>", [], True, float("nan"), None])
def test_captured_settings_that_are_no_numbers_are_not_known(labelled: Runs, written: object) -> None:
    settings = sidecar_of({"dataloader": {"num_workers": written, "prefetch_factor": 3}, "ddp": written})
    measures = replace(labelled("clean.ddp").measures, settings=settings)
    known, stated = present(measures, {}), present(measures, {"num_workers": 2.0}).num_workers
    assert (known.num_workers, known.prefetch_factor, known.bucket_cap_mb, stated) == (None, 3, None, 2)


def test_a_curve_keeps_what_is_as_good_as_the_best() -> None:
    points = tuple(map(Point, (1, 10, 25, 50, 100), (200.0, 101.0, 100.0, 101.9, 150.0)))
    assert [p.value for p in SettingCurve("k", points).flat] == [10, 25, 50]
    advice = SettingCurve("k", points, now=50).advised((25.0,)), SettingCurve("k", points, now=1).advised((100.0, 10.0))
    assert [one.value for one in (*advice, SettingCurve("k", points).advised(()))] == [50, 10, 25]


def test_buckets_that_no_other_size_beats_are_out_of_reach(labelled: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    run = labelled("comm.no_overlap")
    by_hand = fires(run, "comm.no_overlap")
    of_ddp, unknown = (replace(by_hand, fixes=(replace(by_hand.fixes[0], current=now),)) for now in ("400", None))
    assert advised.out_of_reach(of_ddp, run.pricer) is None  # smaller buckets are faster
    monkeypatch.setattr(advised, "_PLANS", dict.fromkeys(("bucket_cap_mb", "num_workers"), lambda *_: (25.0, True)))
    assert "buckets of other sizes" in (advised.out_of_reach(of_ddp, run.pricer) or "")
    assert advised.out_of_reach(unknown, run.pricer) is None  # nobody says that DDP reduces them
    assert advised.out_of_reach(replace(of_ddp, changes=(Change("rebucket"),)), run.pricer) is None
    little = replace(by_hand, lost_us=1e9, instead=replace(by_hand, changes=(), ceiling_us=1e9))
    assert "would hide" in (advised.out_of_reach(little, run.pricer) or "")
    fixes = (Fix(name, "1", "", "", current="0", applies=((name, 1),)) for name in ("num_workers", "prefetch_factor"))
    assert [fix.setting for fix in advised.planned(tuple(fixes), run.pricer)] == ["cost of a batch"]


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
def test_plan_and_report_agree_on_workers(labelled: Runs, what: str, cpu_share: float, cores: int, said: str) -> None:
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


# Sample -> what its leading finding suggests.
SUGGESTED = {
    "allocator": "allocator=off",
    "bandwidth": "compression=bf16",
    "bubble": "microbatches=8",
    "checkpoint": "checkpoint=off",
    "fp32": "precision=bf16",
    "gc": "gc=off",
    "imbalance": "balance=on",
    "late_loader": "loader=ready@2",
    "pageable_copy": "copies=hidden",
    "sharding": "reshard_after_forward=False",
    "slow_gpu": "device=replaced@2",
    "slow_host": "device=replaced@1",
    "slow_stage": "stages=balanced",
    "small_buckets": "bucket_cap_mb=25",
    "starved_loader": "loader=ready",
    "sync": "sync=off",
    "unfused_optimizer": "optimizer=fused",
}


@pytest.mark.parametrize("sample", SUGGESTED)
def test_a_finding_suggests_what_gains_as_it_says(sample: str) -> None:
    run = sample_run(sample)
    found, now = run.report.ranked_findings(), present(run.measures, {})
    offered = {offer.knob.key: offer for offer in offers(run.pricer, now, found)}
    suggested = [offer.suggested for offer in offered.values() if offer.because == 0 and offer.suggested]
    assert [text_of(setting) for setting in suggested] == [SUGGESTED[sample]]
    gain = found[0].alone_us or found[0].recoverable_us
    assert gain.low <= predict(run.pricer, suggested, now).gain_us <= gain.high
    assert all(offered[setting.key].lacking == "" for setting in suggested)


def test_a_price_that_a_rule_bounds_is_that_of_the_what_if_and_settings_have_names_of_the_job() -> None:
    run = sample_run("barriers")
    now = present(run.measures, {})
    (blocking,) = [f for f in run.report.findings if f.id == "host.sync"]
    free, gain = predict(run.pricer, [Setting("sync", "off")], now), blocking.alone_us or blocking.recoverable_us
    told = (free.gain_us, free.before_us - free.low_us)
    assert told == pytest.approx((gain.value, gain.high)) and remedies(blocking, run.pricer, now)
    assert applied_as(Setting("optimizer", "fused")) == "fused=true"
    assert applied_as(Setting("num_workers", "4")) == "num_workers=4"
    assert text_of(Setting("compute", "1.3", (5, 6))) == "compute=1.3@5,6"


def test_every_knob_applies_or_says_why_not_with_the_unit_of_what_was_recorded() -> None:
    measures = [sample_run(sample).measures for sample in ("slow_gpu", "bubble", "sharding", "gc", "allocator")]
    reasons = {knob.key: {knob.lacking(each, present(each, {})) for each in measures} for knob in KNOBS}
    assert reasons["microbatches"] >= {"no pipeline stages found in this run", ""}
    assert reasons["gc"] >= {"no garbage collection in the recorded steps", ""}
    assert {""} == reasons["compute"] == reasons["late"]
    run = sample_run("bubble")
    said = {knob.key: knob.current(run.measures, present(run.measures, {})) for knob in KNOBS}
    assert run.job.pipeline is not None and said["microbatches"] == str(run.job.pipeline.microbatches)
    assert said["bandwidth"].endswith("exposed transfer per step") and said["num_workers"] == "not recorded"


def predicted(run: Labelled, *settings: str, now: dict[str, str] | None = None) -> Prediction:
    return predict(run.pricer, [parse_setting(text) for text in settings], present(run.measures, parse_now(now or {})))


@pytest.mark.parametrize(
    ("name", "knob", "error"),
    [
        *(("comm.latency_bound", "bucket_cap_mb", 0.04), ("comm.no_overlap", "bucket_cap_mb", 0.01)),
        *(("input.starved", "num_workers", 0.03), ("pipeline.bubble", "microbatches", 0.04)),
    ],
)
def test_settings_give_the_generators_step(labelled: Runs, name: str, knob: str, error: float) -> None:
    """The latency run holds no message above 1 MiB: larger ones are extrapolated."""
    run = labelled(name)
    now = {"num_workers": "2"} if knob == "num_workers" else {}
    for value, true_us in run.fault["sweep"][knob].items():
        said = predicted(run, f"{knob}={value}", now=now)
        assert said.after_us == pytest.approx(true_us, rel=error), value
        assert name != "comm.latency_bound" or said.low_us <= true_us <= said.high_us


def test_faster_links_help_other_buckets_too(labelled: Runs) -> None:
    run = labelled("comm.latency_bound")
    one, both = predicted(run, "bucket_cap_mb=25"), predicted(run, "bucket_cap_mb=25", "bandwidth=2")
    swapped = predicted(run, "bandwidth=2", "bucket_cap_mb=25")
    assert both.after_us < one.after_us < one.before_us and both.after_us == swapped.after_us
    assert [level.key for level in both.levels] == ["bucket_cap_mb", "bandwidth"]


def test_workers_and_prefetch_are_one_loader_and_a_wish_is_granted_once(labelled: Runs) -> None:
    run, ready = labelled("input.starved"), Change("instant_loader")
    both = predicted(run, "num_workers=4", "prefetch_factor=3", now={"num_workers": "2", "cores": "8"})
    four = predicted(run, "num_workers=4", now={"num_workers": "2"})
    assert [change.values for change in both.changes] == [(4.0, 3.0, 2.0, 8.0)]
    assert both.after_us <= four.after_us * 1.001 and bottleneck(run.pricer, four.changes).id == "compute"
    assert run.pricer.step_us((ready, ready)) == run.pricer.step_us((ready,))


def test_what_the_report_withdraws_is_no_bottleneck(labelled: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnose, "_unless_chance", lambda candidate, _: Abstention(candidate.id, "a busy machine"))
    assert bottleneck(labelled("straggler.compute").pricer, ()).gain_us is None


def test_what_removes_the_fault_gives_the_generators_step_without_it(labelled: Runs) -> None:
    run = labelled("straggler.compute")
    assert bottleneck(run.pricer, ()).id == "straggler.compute"
    assert bottleneck(run.pricer, predicted(run, "device=replaced@2").changes).id == "compute"
    for text in ("device=replaced@2", "late=off@2", "compute=1.3@2"):
        assert predicted(run, text).after_us == pytest.approx(run.label["counterfactual_step_us"], rel=0.04), text
    run = labelled("comm.sharding")
    kept = predicted(run, "reshard_after_forward=False")
    assert kept.after_us == pytest.approx(run.label["counterfactual_step_us"], rel=0.05)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        *(("foo=1", "known: bandwidth"), ("bandwidth", "KEY=VALUE"), ("bandwidth=fast", "a number")),
        *(("bandwidth=nan", "a number"), ("loader=on", "the only value is ready"), ("balance=on@1", "single ranks")),
        *(("compute=2@99", "no rank 99"), ("compute=2@x", "ranks are written"), ("late=off", "which ranks")),
        *(("microbatches=4", "no pipeline"), ("num_workers=4", "--now num_workers")),
        *(("reshard_after_forward=False", "no all-gather"), ("precision=int1", "one of")),
    ],
)
def test_nonsense_is_one_line(labelled: Runs, text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as told:
        predicted(labelled("straggler.compute"), text)
    assert "\n" not in str(told.value)


def test_prefetching_gives_the_generators_step(tmp_path: Path) -> None:
    base = corpus.job(kind="prefetch", parallel=Parallel("fsdp", dp=4, prefetch=False))
    base = replace(base, cluster=replace(base.cluster, intra_gbps=base.cluster.intra_gbps / 4))
    truth_us = step_time(replace(base, parallel=replace(base.parallel, prefetch=True)))
    said = predicted(drawn(base, tmp_path), "prefetch=on")
    assert said.after_us == pytest.approx(truth_us, rel=0.03) and said.low_us <= truth_us <= said.high_us
