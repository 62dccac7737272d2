"""What-if offers of a run: those that apply, and the findings' suggestions at their stated gain."""

import pytest
from labelled_runs import sample_run

from ddprof.analyzers.settings.knobs import KNOBS, Setting
from ddprof.analyzers.settings.offers import applied_as, offers, remedies, text_of
from ddprof.analyzers.settings.predict import predict
from ddprof.analyzers.settings.present import present

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


def test_a_price_that_a_rule_bounds_suggests_nothing_and_settings_have_names_of_the_job() -> None:
    run = sample_run("barriers")
    now = present(run.measures, {})
    (blocking,) = [f for f in run.report.findings if f.id == "host.sync"]
    free = predict(run.pricer, [Setting("sync", "off")], now).gain_us
    assert free > (blocking.alone_us or blocking.recoverable_us).high
    assert remedies(blocking, run.pricer, now) == ()
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
