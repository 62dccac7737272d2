"""The rarer faults: each is in the files as it should be, and costs what the label says."""

import json
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from benchmarks.oracle.faults import EFFECTS, build
from benchmarks.oracle.kineto import TraceWriter
from benchmarks.oracle.labels import label
from benchmarks.oracle.rarer_faults import FINDINGS
from benchmarks.oracle.rarer_kinds import RARER_KINDS
from benchmarks.oracle.simulate import Run, simulate
from benchmarks.oracle.small_runs import fault, small_run
from benchmarks.oracle.spec import Model, Parallel

MODEL = Model(layers=2, params_per_layer=3_000_000)
FSDP = Parallel("fsdp", dp=3)
PIPELINE = Parallel("pp", dp=1, pp=3, microbatches=6)
SIZES = {"ranks": 3, "steps": 4, "model": MODEL, "loader_us": 9_000.0}
# Fault -> its strength and ranks, and what the run of it has of its own.
RUNS: dict[str, tuple[tuple[float, ...], dict[str, Any]]] = {
    **{"host.stalled": ((9e3,), {}), "input.preprocessing": ((8e3,), {}), "host.evaluation": ((2.0, 0), {})},
    **{"host.script": ((2e4,), {}), "script.one_rank": ((2e4, 1), {}), "comm.barrier": ((16.0,), {})},
    "imbalance.hot_expert": ((2.0, 1), {"model": replace(MODEL, arch="moe")}),
    "imbalance.hot_table": ((3.0, 2), {"model": replace(MODEL, arch="dlrm")}),
    "fsdp.nested": ((1500.0,), {"parallel": FSDP}),
    "fsdp.no_prefetch": ((60.0,), {"parallel": FSDP}),
    "pipeline.slow_link": ((900.0, 0, 1), {"parallel": PIPELINE}),
}


@cache
def simulated(name: str) -> Run:
    (strength, *ranks), own = RUNS[name]
    return simulate(small_run(fault(name, strength, *ranks), **SIZES | own))


def events(name: str, rank: int = 0) -> list[dict[str, Any]]:
    run = simulated(name)
    return [e for e in json.loads(TraceWriter(run, run.ranks[rank]).text())["traceEvents"] if e["ph"] == "X"]


@pytest.mark.parametrize("name", list(RUNS))
def test_the_fault_costs_what_the_label_says(name: str) -> None:
    run = simulated(name)
    found = label(run)
    (truth,) = found["faults"]
    healthy = simulate(run.scenario, build(run.scenario, frozenset([0])), recording=False).step_us()
    assert truth["id"] == FINDINGS.get(name, name) == truth["acceptable_ids"][0]
    assert truth["counterfactual_step_us"] == pytest.approx(healthy, abs=0.01) and truth["share"] > 0.03
    assert truth["culprit_ranks"] in truth["acceptable_culprits"] and found["expected_bound"]
    job = found["ledger"]["job"]
    assert sum(us for cause, us in job.items() if cause != "wall_us") == pytest.approx(job["wall_us"], abs=0.2)


def test_every_rarer_kind_has_its_effect_on_the_files_that_there_are() -> None:
    assert set(RUNS) <= set(EFFECTS) and set(RUNS) <= set(RARER_KINDS)
    nested, gathered = (
        sum("AllGather" in e["name"] for e in events(name) if e["cat"] == "kernel")
        for name in ("fsdp.nested", "fsdp.no_prefetch")
    )
    assert nested > 2 * gathered > 0
    assert label(simulated("fsdp.no_prefetch"))["ledger"]["job"]["comm_transfer"] > 500.0
    run = simulated("host.stalled")
    (truth,) = label(replace(run, scenario=replace(run.scenario, missing_ranks=(2,))))["faults"]
    assert [] in truth["acceptable_culprits"] and [0, 1] in truth["acceptable_culprits"]


def test_stalls_preprocessing_and_barriers_are_in_the_calls_of_the_host() -> None:
    assert max(e["dur"] for e in events("host.stalled") if e["name"].startswith(("aten::layer_norm", "aten::linear",
               "aten::add", "aten::gelu", "autograd"))) > 800.0  # fmt: skip
    assert sum(e["dur"] for e in events("input.preprocessing") if e["name"].startswith("aten::_upsample")) > 4e3
    assert label(simulated("input.preprocessing"))["ledger"]["job"]["dataloader"] > 6e3
    assert len([e for e in events("comm.barrier") if e["name"] == "c10d::barrier"]) == 16 * 4
    assert label(simulated("comm.barrier"))["ledger"]["job"]["host_sync"] > 100.0


def test_one_rank_is_hot_or_evaluates_and_the_others_wait() -> None:
    for name, rank in (("imbalance.hot_expert", 1), ("imbalance.hot_table", 2)):
        book = label(simulated(name))["ledger"]["per_rank"]
        assert book[str(rank)]["compute"] > 1.1 * book["0"]["compute"]
        assert any(e["name"] == "c10d::alltoall_base_" for e in events(name))
    book = label(simulated("host.evaluation"))["ledger"]["per_rank"]
    assert book["1"]["comm_wait"] > 0.05 * book["1"]["wall_us"] > book["0"]["comm_wait"]
