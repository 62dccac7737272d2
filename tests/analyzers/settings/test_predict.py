"""Predicted settings against the generator's own step at those settings."""

from dataclasses import replace
from pathlib import Path

import corpus
import pytest
from labelled_runs import Labelled, Runs, drawn

from benchmarks.oracle.simulate import step_time
from benchmarks.oracle.spec import Parallel
from ddprof.analyzers import diagnose
from ddprof.analyzers.bottleneck import bottleneck
from ddprof.analyzers.settings.knobs import parse_setting
from ddprof.analyzers.settings.predict import Prediction, predict
from ddprof.analyzers.settings.present import parse_now, present
from ddprof.errors import UsageError
from ddprof.findings import Abstention, Change


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
