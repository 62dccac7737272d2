"""Each mess changes the files as it should, and the label stays true: of the steady steps, by simulation. The rarer
faults: each is in the files as it should be, and costs what the label says."""

import json
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from benchmarks.oracle.draws import generator
from benchmarks.oracle.faults import EFFECTS, build
from benchmarks.oracle.kineto import TraceWriter
from benchmarks.oracle.labels import label
from benchmarks.oracle.ledger import CAUSES
from benchmarks.oracle.mess.catalogue import MESSES, add, changed, cut, fits_together
from benchmarks.oracle.messy import messy_scenario
from benchmarks.oracle.rarer_faults import FINDINGS
from benchmarks.oracle.rarer_kinds import RARER_KINDS
from benchmarks.oracle.simulate import Run, simulate
from benchmarks.oracle.small_runs import cluster, fault, small_run
from benchmarks.oracle.spec import Mess, Model, Parallel, Scenario
from benchmarks.oracle.together import OF_ONE_JOB, together, write_together

SIZES: Any = {"ranks": 3, "steps": 4, "model": Model(layers=2, params_per_layer=3_000_000), "loader_us": 9_000.0}
BASE = small_run(fault("straggler.compute", 0.3, 1, mode="all"), **SIZES)
IN_THE_FILE = ["lost", "sampled", "holes", "truncated", "nomarks", "renamed", "nested", "devicemarks", "stacks"]
IN_THE_FILE += ["partial"]
FITTING = tuple(name for name in MESSES if name != "interleaved")  # which needs a pipeline
ONCE = tuple(name for name, kind in MESSES.items() if kind.once)
TRUTH = ("step_us", "per_step_us", "counterfactual_step_us", "recoverable_us", "faults", "ledger", "comm_free_step_us")
ONCE_TOLERANCE = 0.01  # of the step: when ranks begin the steady steps differs by microseconds
SUM_TOLERANCE_US = 0.2
# Fault -> its strength and ranks, and what the run of it has of its own.
RUNS: dict[str, tuple[tuple[float, ...], dict[str, Any]]] = {
    **{"host.stalled": ((9e3,), {}), "input.preprocessing": ((8e3,), {}), "host.evaluation": ((2.0, 0), {})},
    **{"host.script": ((2e4,), {}), "script.one_rank": ((2e4, 1), {}), "comm.barrier": ((16.0,), {})},
    "imbalance.hot_expert": ((2.0, 1), {"model": replace(SIZES["model"], arch="moe")}),
    "imbalance.hot_table": ((3.0, 2), {"model": replace(SIZES["model"], arch="dlrm")}),
    "fsdp.nested": ((1500.0,), {"parallel": Parallel("fsdp", dp=3)}),
    "fsdp.no_prefetch": ((60.0,), {"parallel": Parallel("fsdp", dp=3)}),
    "pipeline.slow_link": ((900.0, 0, 1), {"parallel": Parallel("pp", dp=1, pp=3, microbatches=6)}),
}
Events = list[dict[str, Any]]


def messy(name: str, scenario: Scenario = BASE) -> Scenario:
    scenario = add(generator(scenario.seed, "test"), scenario, (name,))
    assert scenario is not None
    return scenario


@cache
def simulated(name: str) -> Run:
    """The run with a mess or a rarer fault, or "" for none."""
    if name not in RUNS:
        return simulate(messy(name) if name else BASE)
    (strength, *ranks), own = RUNS[name]
    return simulate(small_run(fault(name, strength, *ranks), **SIZES | own))


@cache
def labelled(name: str) -> dict[str, Any]:
    return label(simulated(name))


def text(run: Run, rank: int = 0) -> str:
    return TraceWriter(run, run.ranks[rank], partial(changed, run.scenario)).text()


def events(name: str | Run, rank: int = 0) -> Events:
    run = simulated(name) if isinstance(name, str) else name
    return [e for e in json.loads(text(run, rank))["traceEvents"] if e["ph"] == "X"]


def of(rows: Events, *categories: str) -> Events:
    return [e for e in rows if e["cat"] in categories]


def marks(rows: Events, category: str = "user_annotation") -> Events:
    return [e for e in of(rows, category) if e["name"].startswith("ProfilerStep")]


def launched(rows: Events) -> set[bool]:
    """Answers for all kernels: the call of its launch is in the file, or is not."""
    calls = {e["args"]["correlation"] for e in of(rows, "cuda_runtime", "cuda_driver")}
    return {e["args"]["correlation"] in calls for e in of(rows, "kernel")}


@pytest.mark.parametrize("name", [name for name in FITTING if name not in ("truncated", "partial")])
def test_every_mess_changes_the_files(name: str) -> None:
    assert any(text(simulated(name), rank) != text(simulated(""), rank) for rank in range(3))


@pytest.mark.parametrize("name", IN_THE_FILE)
def test_what_is_in_the_file_alone_leaves_the_truth_as_it_is(name: str) -> None:
    with_mess, without = labelled(name), labelled("")
    keys = TRUTH if name != "partial" else ("step_us", "faults")  # the ledger covers the ranks that have a file
    assert {key: with_mess[key] for key in keys} == {key: without[key] for key in keys}
    assert {int(r) for r in with_mess["ledger"]["per_rank"]} == {0, 1, 2} - {*with_mess["missing_ranks"]}


@pytest.mark.parametrize("name", ONCE)
def test_what_occurs_once_leaves_the_steady_steps_as_they_are(name: str) -> None:
    with_mess, without = labelled(name), labelled("")
    step = without["step_us"]
    assert with_mess["step_us"] == pytest.approx(step, rel=ONCE_TOLERANCE)
    for cause, us in without["ledger"]["job"].items():
        assert with_mess["ledger"]["job"][cause] == pytest.approx(us, abs=ONCE_TOLERANCE * step), cause
    assert with_mess["recorded_steps"] > without["steps"]
    assert with_mess["all_steps_us"] > 1.05 * step and with_mess["accept_step_us"] == [with_mess["step_us"]]
    assert "host.launch_bound" in with_mess["forbidden_ids"] and with_mess["faults"][0]["share"] > 0.1


@pytest.mark.parametrize("name", FITTING)
def test_causes_sum_and_removing_the_fault_is_simulated(name: str) -> None:
    found = labelled(name)
    for row in (*found["ledger"]["per_rank"].values(), found["ledger"]["job"]):
        assert sum(row[cause] for cause in CAUSES) == pytest.approx(row["wall_us"], abs=SUM_TOLERANCE_US)
        assert min(row.values()) >= 0.0
    scenario = simulated(name).scenario
    healthy = simulate(scenario, build(scenario, frozenset([0])), recording=False)
    (truth,) = found["faults"]
    assert truth["counterfactual_step_us"] == pytest.approx(healthy.step_us(), abs=0.01)
    assert healthy.step_us() == pytest.approx(simulate(replace(scenario, faults=())).step_us(), abs=0.01)


def test_start_up_and_the_profiler_are_in_the_steps_that_hold_them() -> None:
    first, *others = (e["dur"] for e in marks(events("cold")))
    assert first > 10 * max(others)
    names = {e["name"] for e in events("cold") if e["dur"] > 0.03 * first}
    assert {"cudaFree", "cudaLaunchKernel", "aten::empty"} <= names and any("DataLoader" in name for name in names)
    first, *others, last = (e["dur"] for e in marks(events("prof")))
    assert min(first, last) > 1.5 * max(others)


def test_work_of_hosts_ahead_and_of_foreign_streams_is_not_all_in_the_file() -> None:
    rows = events("ahead")
    assert False in launched(rows)
    assert max(e["ts"] for e in of(rows, "kernel")) > max(e["ts"] + e["dur"] for e in marks(rows))
    steps = labelled("ahead")["accept_step_us"]
    assert steps[0] == labelled("ahead")["step_us"] and max(steps) < 1.03 * steps[0]
    rows, foreign = events("foreign"), labelled("foreign")
    first, begin = (min(e["ts"] for e in some) for some in (of(rows, "kernel"), marks(rows)))
    assert launched(rows) == {True} and first - begin > simulated("foreign").scenario.mess[0].strength
    assert foreign["accept_step_us"] == [foreign["step_us"]] == [pytest.approx(steps[0], rel=0.02)]


def test_lost_records_are_few_sampled_ones_many_and_holes_cuts_and_shifts_are_told() -> None:
    count = {name: len(events(name)) for name in ("", "lost", "sampled")}
    assert 0.9 * count[""] < count["lost"] < count[""] and 0.2 * count[""] < count["sampled"] < 0.9 * count[""]
    holes, truncated = messy("holes"), messy("truncated")
    assert {entry["rank"] for entry in labelled("holes")["health"]} == {*holes.mess[0].ranks}
    for rank in range(3):
        data = text(simulated(""), rank).encode()
        assert (len(cut(truncated, rank, data)) < len(data)) == (rank in truncated.mess[0].ranks)
    recorded = [{e["name"] for e in marks(events("shifted", rank))} for rank in range(3)]
    common = set.intersection(*recorded)
    assert len({frozenset(names) for names in recorded}) > 1
    assert len(common) >= labelled("shifted")["steps"] - 2 == len(labelled("shifted")["per_step_us"])


def test_marks_may_be_missing_and_a_rendezvous_leaves_its_waits_in_the_ledger_alone() -> None:
    assert not any("nccl" in e["name"] for e in events("rdv")) and any("nccl" in e["name"] for e in events(""))
    book = labelled("rdv")["ledger"]["per_rank"]
    assert book["0"]["comm_wait"] > 0.15 * book["0"]["wall_us"] > 4 * book["1"]["comm_wait"]
    assert any("nccl" in e["name"] for e in events("rdv_beside"))
    steps = len(marks(events("")))
    for name, host in (("nomarks", 0), ("renamed", 0), ("nested", steps), ("devicemarks", 0)):
        assert len(marks(events(name))) == host, name
    assert len(marks(events("devicemarks"), "gpu_user_annotation")) == steps
    assert sum(e["name"] == "train_loop_inner" for e in events("nested")) == steps


@pytest.mark.parametrize(("mode", "call"), [("inductor", "cuLaunchKernel"), ("graphs", "cudaGraphLaunch")])
def test_compiled_regions_triton_kernels_and_graphs(mode: str, call: str) -> None:
    run = simulate(replace(BASE, mess=(Mess("compiled", detail={"mode": mode}),)))
    names = {e["name"] for e in events(run)}
    assert {"Torch-Compiled Region: 0/0", call} <= names and any(n.startswith("triton_") for n in names)
    assert run.step_us() == pytest.approx(labelled("")["step_us"], rel=0.02) and launched(events(run)) == {True}


def test_stacks_accumulation_lengths_and_chunks() -> None:
    assert len(of(events("stacks"), "python_function")) > len(of(events(""), "cpu_op"))
    loads = [e for e in events("accum") if e["name"].startswith("enumerate(DataLoader)")]
    assert len(loads) == int(simulated("accum").scenario.mess[0].strength) * len(marks(events("accum")))
    lengths = labelled("varlen")["per_step_us"]
    assert max(lengths) > 1.1 * min(lengths)
    pipeline = replace(BASE, faults=(), cluster=cluster(2), parallel=Parallel("pp", dp=1, pp=2, microbatches=4))
    plain, chunks = label(simulate(pipeline)), label(simulate(messy("interleaved", pipeline)))
    assert chunks["ledger"]["job"]["compute"] == pytest.approx(plain["ledger"]["job"]["compute"], rel=0.02)
    assert chunks["ledger"]["job"]["pipeline_bubble"] < 0.7 * plain["ledger"]["job"]["pipeline_bubble"]
    assert chunks["step_us"] < plain["step_us"]


def test_runs_of_a_folder_are_independent(tmp_path: Path) -> None:
    for name in ("unrelated", "ab_pair"):
        truth = write_together(together(5, name), tmp_path / name)
        files = [*(tmp_path / name / "traces").iterdir()]
        assert len(files) == truth["independent_runs"] == len(truth["run_step_us"]) >= 2
        assert truth["clean"] and set(OF_ONE_JOB) <= set(truth["forbidden_ids"])


def test_messy_runs_are_drawn_by_seed() -> None:
    for seed in range(6):
        one, other = (messy_scenario(seed, 0.5, kinds=("clean.plain", "straggler.compute")) for _ in range(2))
        names = tuple(mess.name for mess in one.mess)
        assert one == other and 1 <= len(names) <= 3 and fits_together(names) and one.cluster.world <= 8


@pytest.mark.parametrize("name", list(RUNS))
def test_the_fault_costs_what_the_label_says(name: str) -> None:
    run, found = simulated(name), labelled(name)
    (truth,) = found["faults"]
    healthy = simulate(run.scenario, build(run.scenario, frozenset([0])), recording=False).step_us()
    assert truth["id"] == FINDINGS.get(name, name) == truth["acceptable_ids"][0]
    assert truth["counterfactual_step_us"] == pytest.approx(healthy, abs=0.01) and truth["share"] > 0.03
    assert truth["culprit_ranks"] in truth["acceptable_culprits"] and found["expected_bound"]
    job = found["ledger"]["job"]
    assert sum(us for cause, us in job.items() if cause != "wall_us") == pytest.approx(job["wall_us"], abs=0.2)


def test_every_rarer_kind_has_its_effect_on_the_files_that_there_are() -> None:
    assert set(RUNS) <= set(EFFECTS) and set(RUNS) <= set(RARER_KINDS)
    of_fsdp = (of(events(name), "kernel") for name in ("fsdp.nested", "fsdp.no_prefetch"))
    nested, gathered = (sum("AllGather" in e["name"] for e in rows) for rows in of_fsdp)
    assert nested > 2 * gathered > 0
    assert labelled("fsdp.no_prefetch")["ledger"]["job"]["comm_transfer"] > 500.0
    run = simulated("host.stalled")
    (truth,) = label(replace(run, scenario=replace(run.scenario, missing_ranks=(2,))))["faults"]
    assert [] in truth["acceptable_culprits"] and [0, 1] in truth["acceptable_culprits"]


def test_stalls_preprocessing_and_barriers_are_in_the_calls_of_the_host() -> None:
    assert max(e["dur"] for e in events("host.stalled") if e["name"].startswith(("aten::layer_norm", "aten::linear",
               "aten::add", "aten::gelu", "autograd"))) > 800.0  # fmt: skip
    assert sum(e["dur"] for e in events("input.preprocessing") if e["name"].startswith("aten::_upsample")) > 4e3
    assert labelled("input.preprocessing")["ledger"]["job"]["dataloader"] > 6e3
    assert len([e for e in events("comm.barrier") if e["name"] == "c10d::barrier"]) == 16 * 4
    assert labelled("comm.barrier")["ledger"]["job"]["host_sync"] > 100.0


def test_one_rank_is_hot_or_evaluates_and_the_others_wait() -> None:
    for name, rank in (("imbalance.hot_expert", 1), ("imbalance.hot_table", 2)):
        book = labelled(name)["ledger"]["per_rank"]
        assert book[str(rank)]["compute"] > 1.1 * book["0"]["compute"]
        assert any(e["name"] == "c10d::alltoall_base_" for e in events(name))
    book = labelled("host.evaluation")["ledger"]["per_rank"]
    assert book["1"]["comm_wait"] > 0.05 * book["1"]["wall_us"] > book["0"]["comm_wait"]
