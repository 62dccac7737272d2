"""Every rule on healthy runs, on runs of other faults and of one rank: it finds nothing, and says what it lacks."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from captured import on_hosts, with_sidecars
from corpus import CLEAN
from cpu_loop import Chore, cpu_loop, operators
from kineto_run import Script
from labelled_runs import Labelled, Runs, abstains, candidate, candidates, fires, on_every_rank, run_of

from ddprof.analyzers.catalogue import catalogue
from ddprof.analyzers.facts.model import Phase
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.rules.evidence.sharded import unit_costs
from ddprof.findings import Abstention, Candidate

NOT_RECORDED = {"host.script", "input.unsharded", "memory.headroom"}  # stacks, samplers, memory events
NOT_COMPARABLE = {
    "clean.ddp": {"comm.slow_link"},  # one process group, or one link of the pipeline
    "clean.fsdp": {"comm.slow_link"},
    "clean.tpdp": set(),
    "clean.pp": {"comm.slow_link", "straggler.imbalance"},
}
# All-reduces that cross hosts and are more than their link hides; a bubble that more microbatches would not make less.
FOUND = {"clean.tpdp": {"comm.bandwidth_bound"}, "clean.pp": {"pipeline.bubble"}}
TIMED = {"host.allocator", "host.checkpoint", "input.starved"}  # a host's own time, as the runs have it
SUGGESTED = {
    "compute.precision": ("fp32", "autocast", "bf16"),
    "compute.unfused_optimizer": ("fused", "True"),
    "comm.sharding": ("reshard_after_forward", "False"),
    "host.launch_bound": ("compile",),
}


@pytest.mark.parametrize("name", CLEAN)
def test_rules_are_silent_on_a_healthy_run(labelled: Runs, name: str) -> None:
    said = [each for rule in catalogue() for each in labelled(name).said(rule)]
    assert {(c.id, c.ranks) for c in said if isinstance(c, Candidate)} == {(rule, ()) for rule in FOUND.get(name, ())}
    assert {a.id for a in said if isinstance(a, Abstention)} == NOT_RECORDED | NOT_COMPARABLE[name]


@pytest.mark.parametrize(
    ("rule_id", "name"),
    [
        *(("comm.latency_bound", f"comm.{kind}") for kind in ("no_overlap", "bandwidth_bound", "sharding")),  # large
        *(("comm.no_overlap", "comm.sharding"), ("comm.sharding", "comm.bandwidth_bound")),  # ahead; none is gathered
        *(("host.stalled", "straggler.host"), ("host.stalled", "host.launch_bound")),
        *(("input.starved", "input.straggler"), ("input.straggler", "input.starved")),  # one late loader; all are slow
        ("memory.headroom", "recomputation for want of memory"),
        ("straggler.compute", "pipeline.imbalance"),  # more layers and slow links are no slow device
        *(("straggler.compute", "pipeline.bubble"), ("straggler.compute", "slow link between stages")),
        *((f"straggler.{kind}", "straggler.compute") for kind in ("host", "imbalance")),  # always the same rank
    ],
)
def test_rules_are_silent_on_a_fault_that_is_not_theirs(labelled: Runs, rule_id: str, name: str) -> None:
    assert labelled(name).said(rule_id) == []


def test_rules_on_what_holds_a_host_say_for_how_long_each_rank_has_it(labelled: Runs) -> None:
    """Such a finding on the whole job cannot be made of a time that few ranks alone have (ddprof/whose.py)."""
    for rule in TIMED:
        for said in labelled(rule).said(rule):
            assert isinstance(said, Candidate) and len(said.times_us) == len(labelled(rule).job.ranks), said


@pytest.mark.parametrize(
    ("rule_id", "reason"),
    [
        *(("input.straggler", "only one rank"), ("straggler.compute", "only one rank")),
        *(("straggler.host", "only one rank"), ("straggler.unexplained", "only one rank")),
        ("straggler.imbalance", "no two traced ranks"),
    ],
)
def test_one_rank_has_nobody_to_be_compared_with(labelled: Runs, rule_id: str, reason: str) -> None:
    run = labelled("straggler.compute" if rule_id == "straggler.unexplained" else rule_id)
    assert reason in abstains(rule_id, run.only(0))


@pytest.mark.parametrize("rule_id", SUGGESTED)
def test_what_suits_the_fault_is_suggested(labelled: Runs, rule_id: str) -> None:
    said = " ".join(map(str, fires(labelled(rule_id), rule_id).fixes))
    assert all(word in said for word in SUGGESTED[rule_id]), said


@pytest.mark.parametrize(("other", "is_told"), [("float64", True), ("float32", False)])
def test_a_model_in_double_precision_is_told(healthy: Labelled, other: str, is_told: bool) -> None:
    """By the parameters that capture recorded: all ranks have it, or something else keeps their copies apart."""
    records = [{"parameters": {"count": 10**6, "size_bytes": 8 * 10**6, "dtype": own}} for own in ("float64", other)]
    measures = with_sidecars(healthy, *records)
    told = candidates("compute.precision", measures)
    assert [said.summary.startswith("the model computes in double precision") for said in told] == [True] * is_told
    if is_told:
        assert 0.4 * measures.step_us < healthy.pricer.gain_us(told[0]) < 0.55 * measures.step_us
        assert told[0].fixes[0].suggested == "float32" and told[0].fixes[0].alters is not None


def test_an_optimizer_without_a_fused_version_is_not_told_to_be_fused(labelled: Runs) -> None:
    """PyTorch's range names the class."""
    measures = labelled(UNFUSED).measures

    def named(*classes: str) -> Measures:
        facts = measures.job.ranks[0]
        steps = tuple(f"Optimizer.step#{name}.step" for name in classes)
        of_optimizer = facts.phases["phase"] == Phase.OPTIMIZER
        own = len(facts.strings) + np.arange(len(of_optimizer)) % len(steps)
        phases = facts.phases.replace(name=np.where(of_optimizer, own, facts.phases["name"]))
        return on_every_rank(measures, strings=(*facts.strings, *steps), phases=phases)

    assert "of Muon take " in abstains(UNFUSED, named("AdamW", "Muon"))
    assert "torch.optim.SGD(" in str(candidate(UNFUSED, named("ZeroRedundancyOptimizer", "SGD")).fixes)


def test_nothing_is_suggested_that_would_not_fit_or_of_hosts_that_were_not_seen(labelled: Runs) -> None:
    full = {"peak_allocated_bytes": 79 * 10**9, "total_bytes": 80 * 10**9}
    measures = on_every_rank(labelled("comm.sharding").measures, memory=full)
    assert list(catalogue()["comm.sharding"].detect(measures)) == []
    on_cpus = on_every_rank(labelled("clean.ddp").measures, is_device_rank=False)
    assert "CPU run" in abstains("host.launch_bound", on_cpus)


UNFUSED = "compute.unfused_optimizer"


def steps_of(name: str, count: int, dur_us: float) -> Chore:
    """An optimizer of this class that calls so many operators, with 10 us of Python after each."""

    def chore(script: Script) -> None:
        with script.frame(f"Optimizer.step#{name}.step", "user_annotation"):
            operators(script, "addcmul_", count=count, dur_us=dur_us)

    return chore


@pytest.mark.parametrize(
    ("name", "count", "dur_us", "is_told"),
    [("AdamW", 200, 5.0, True), ("AdamW", 200, 50.0, False), ("AdamW", 20, 5.0, False), ("Lamb", 200, 5.0, False)],
)
def test_many_operators_of_an_optimizer_are_told_on_cpu_ranks(
    tmp_path: Path, name: str, count: int, dur_us: float, is_told: bool
) -> None:
    run = run_of([cpu_loop(tmp_path, after=steps_of(name, count, dur_us))])
    told = candidates(UNFUSED, run.measures)
    assert len(told) == is_told
    if is_told:
        assert told[0].summary.startswith("the optimizer runs as 200 operators per step, 3 ms")
        assert run.pricer.gain_us(told[0]) == pytest.approx(0.75 * 3_000.0, rel=0.03)
        assert told[0].fixes[0].applies == (("fused", True),)


SHARDED = "comm.sharding"
FSDP_1, FSDP_2 = ({"fsdp": {"version": version}} for version in (1, 2))
ZERO_3 = {"deepspeed": {"zero_stage": 3}}


@pytest.mark.parametrize(
    ("sidecar", "kept", "hybrid"),
    [
        (FSDP_1, "ShardingStrategy.SHARD_GRAD_OP", "ShardingStrategy.HYBRID_SHARD"),
        (FSDP_2, "fully_shard(module, reshard_after_forward=False)", "init_device_mesh("),
        (ZERO_3, '"stage": 2', ""),
    ],
    ids=["FSDP 1", "FSDP 2", "ZeRO-3"],
)
def test_each_framework_gets_its_own_call_and_hosts_are_needed_to_replicate_across(
    labelled: Runs, sidecar: dict[str, Any], kept: str, hybrid: str
) -> None:
    measures = with_sidecars(labelled(SHARDED), sidecar)
    (fix,) = candidate(SHARDED, measures).fixes
    assert kept in str(fix.patch)
    patches = [str(fix.patch) for fix in candidate(SHARDED, on_hosts(measures, 2)).fixes]
    assert len(patches) == (2 if hybrid else 1) and hybrid in patches[-1]


def test_one_host_that_gathers_once_has_no_less_sharding(labelled: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    measures = labelled(SHARDED).measures
    costs = unit_costs(measures)
    assert costs is not None and costs.gathers_again
    once = replace(costs, gathers_again=False)
    monkeypatch.setattr("ddprof.analyzers.rules.comm_sharding.unit_costs", lambda _: once)
    assert "no setting reduces traffic" in abstains(SHARDED, measures)
    (fix,) = candidate(SHARDED, on_hosts(measures, 2)).fixes
    assert fix.setting == "hybrid sharding"
