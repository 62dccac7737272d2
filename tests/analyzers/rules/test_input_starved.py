"""Every loader too slow: workers are the fix; without loader ranges nothing is said."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from captured import with_sidecars
from kineto_run import Script
from labelled_runs import Labelled, Runs, abstains, candidate, candidates, fires
from msgspec.structs import replace as replace_struct
from sampled_stacks import totals, with_stacks
from step_timers import LOAD_US, STEP_US, STEPS, loaded, records

from ddprof.analyzers.engine import analyze
from ddprof.analyzers.rules.evidence.loader_cost import made_us
from ddprof.analyzers.rules.input_starved import workers_fix
from ddprof.findings import Basis
from ddprof.sidecar import TimedFetches

ID = "input.starved"


def test_blames_the_job_and_names_workers_where_loaders_have_ranges(faulty: Labelled, healthy: Labelled) -> None:
    said = fires(faulty, ID)
    assert "num_workers" in [fix.setting for fix in said.fixes]
    assert said.lost_us == pytest.approx(faulty.label["ledger"]["job"]["dataloader"], rel=0.02)
    none = replace(healthy.measures, host_counts={**healthy.measures.host_counts, "dataloader": np.zeros(4)})
    assert "no DataLoader range" in abstains(ID, none)


@pytest.mark.parametrize(("longest_of_others", "starved"), [(0.05, False), (0.6, True)])
def test_loaders_that_run_dry_in_turn(healthy: Labelled, longest_of_others: float, starved: bool) -> None:
    """One rank is furthest behind in every step; that others block now and then tells starvation from a straggler."""
    measures = healthy.measures
    step, ranks = measures.step_us, len(measures.job.ranks)
    loader, longest = np.full(ranks, 0.02 * step), np.full(ranks, longest_of_others * 0.1 * step)
    loader[:-1], loader[-1], longest[-1] = 0.003 * step, 0.1 * step, 0.1 * step
    loader[0] = 0.012 * step if starved else loader[0]
    spans_us = {**measures.host_spans_us, "dataloader": loader}
    counts = {**measures.host_counts, "dataloader": np.ones(ranks)}
    given = replace(measures, host_spans_us=spans_us, longest_fetch_us=longest, host_counts=counts)
    said = {c.id: c.ranks for rule_id in (ID, "input.straggler") for c in candidates(rule_id, given)}
    assert said == ({ID: ()} if starved else {"input.straggler": (measures.job.rank_ids[-1],)})


@pytest.mark.parametrize(
    ("cpu_ns", "collate_ns", "kind", "setting"),
    [
        *((0.9, 0.1, "bound by the CPU", "transforms"), (0.1, 0.0, "mostly waiting", "storage")),
        (0.9, 0.6, "collate function", "collate_fn"),
    ],
)
def test_what_a_batch_is_spent_on(faulty: Labelled, cpu_ns: float, collate_ns: float, kind: str, setting: str) -> None:
    fetch_ns = 100_000_000
    fetching = {"workers": 2, "fetch_ns": fetch_ns, "cpu_ns": int(cpu_ns * fetch_ns), "samples": 32}
    fetching["collate_ns"] = int(collate_ns * fetch_ns)
    sidecar = {"fetching": fetching, "dataloader": {"num_workers": 2}, "processors": {"usable": 64, "local_ranks": 8}}
    said = candidate(ID, with_sidecars(faulty, sidecar))
    assert kind in said.evidence[0].text and said.fixes[1].setting == setting
    most = 1_000 if "waiting" in kind else 8  # eight cores for each rank; a fetch that waits needs none
    assert 2 < int(said.fixes[0].suggested) <= most


@pytest.mark.parametrize("rule", [ID, "input.straggler"])
def test_a_sampler_is_no_work_for_workers(labelled: Runs, rule: str) -> None:
    run, calls = labelled(rule), ((9, "<module>", None), (7, "_next_index", 0), (4, "draw", 1), (8, "get", 0))
    frames = [("torch/utils/data/dataloader.py" if line in (7, 8) else "a.py", line, *of) for line, *of in calls]
    for drawn, others in ((30, 20), (10, 20)):
        seen = {"script_totals": totals(("data", 2, drawn), ("data", 3, others))}
        ranks = tuple(replace(with_stacks(facts, *frames), **seen) for facts in run.job.ranks)
        said = candidate(rule, replace(run.measures, job=replace(run.job, ranks=ranks)))
        assert ("sampler" in said.summary and said.fixes[0].setting == "a.py:4 draw()") == (drawn > others)


@pytest.mark.parametrize(
    ("fetch_ms", "outside_ms", "told"),
    [(90, 28, True), (9, 28, False), (90, 12, False)],  # fast workers: another reason; no longer steps: a hidden wait
)
def test_a_queue_that_was_full_while_recorded(faulty: Labelled, fetch_ms: int, outside_ms: int, told: bool) -> None:
    """Traced steps of 12 ms take batches that lay ready; outside, steps wait 16 ms for workers that make one per 30."""
    timed = [(12, 0, False)] * 2 + [(12, 0, True)] * 4 + [(outside_ms, 16, False)] * 20
    ends_ns = (np.cumsum([length for length, _, _ in timed]) * 1_000_000).tolist()
    steps = [
        {"index": i, "start_ns": end - ms * 1_000_000, "end_ns": end, "data_ns": wait * 1_000_000, "profiled": traced}
        for i, ((ms, wait, traced), end) in enumerate(zip(timed, ends_ns, strict=True))
    ]
    fetching = {"workers": 3, "fetch_ns": fetch_ms * 1_000_000, "samples": 32}
    measures = with_sidecars(faulty, {"steps": steps, "fetching": fetching, "dataloader": {"num_workers": 3}})
    said = [one for one in candidates(ID, measures) if one.basis is Basis.TIMED]
    assert [one.most_us for one in said] == ([pytest.approx(16 / 28 * measures.step_us)] if told else [])


@pytest.mark.parametrize(("prefetch", "advised"), [(2, [4, 4]), (4, [4]), (8, [8])])
def test_a_queue_gets_no_shorter(faulty: Labelled, prefetch: int, advised: list[int]) -> None:
    """More workers come with a deep queue; a deeper one by itself is a fix where it is short."""
    fixes = candidate(ID, with_sidecars(faulty, {"dataloader": {"num_workers": 2, "prefetch_factor": prefetch}})).fixes
    assert [dict(fix.applies)["prefetch_factor"] for fix in fixes] == advised
    assert f"prefetch_factor={advised[0]}" in str(fixes[0].patch)


@pytest.mark.parametrize(("workers", "cores", "advised"), [(0, 2, 1), (0, 64, 4), (3, 8, 4), (3, 64, 6)])
def test_workers_of_unknown_cost_respect_the_machine(healthy: Labelled, workers: int, cores: int, advised: int) -> None:
    sidecar = {"dataloader": {"num_workers": workers}, "processors": {"usable": cores, "local_ranks": 2}}
    for drew in (True, False):
        fix = workers_fix(with_sidecars(healthy, sidecar | {"fetch_draws": drew}), 1_000.0)
        assert dict(fix.applies)["num_workers"] == advised and ("random numbers" in fix.why) is drew


@pytest.mark.parametrize(
    ("passes", "batches_per_epoch", "is_told"),
    [(40, 6250, True), (4, 6250, False), (40, 1, False), (None, 6250, False)],
)
def test_a_loader_that_starts_again_for_each_batch(
    tmp_path: Path, passes: int | None, batches_per_epoch: int, is_told: bool
) -> None:
    """`next(iter(loader))`; more workers would be started and ended in each step, too."""
    steps = records([STEP_US] * STEPS, [STEP_US] * 28, LOAD_US)
    more = {"steps_total": 40, "loader_passes": passes, "dataloader": {"batches_per_epoch": batches_per_epoch}}
    measures = with_sidecars(loaded(tmp_path), {"steps": steps, **more})
    said = [one for one in candidates(ID, measures) if "starts its data loader again" in one.summary]
    assert bool(said) is is_told
    for one in said:
        assert one.lost_us == pytest.approx(LOAD_US, rel=0.02) and one.fixes[0].suggested == "made once per epoch"
        assert "40 passes" in one.evidence[0].text


def test_operators_within_a_loaders_range_are_the_loaders(tmp_path: Path) -> None:
    script = Script()
    for _ in script.steps(4):
        with script.frame("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "user_annotation"):
            script.host("aten::stack", 400.0)
        script.copy(1_000_000)
        script.launch(dur_us=300.0, times=5)
        script.synchronise()
    script.facts(tmp_path)
    assert "waits for its data loader" in analyze([tmp_path])[0].verdict.headline


@pytest.mark.parametrize(("data_us", "bound_us"), [(8_000.0, 8_000.0), (200.0, 500.0)])
def test_what_is_seen_of_data_set_and_loader_bounds_loading(tmp_path: Path, data_us: float, bound_us: float) -> None:
    """A sampler's time is in no fetch; a traced fetch far beyond both waited for a CPU."""
    steps = records([STEP_US] * STEPS, [STEP_US] * 28, data_us)
    fetches = [{"start_ns": n, "dur_ns": 500_000, "cpu_ns": 500_000, "collate_ns": 0, "samples": 4} for n in range(9)]
    measures = with_sidecars(loaded(tmp_path), {"steps": steps, "dataloader": {"num_workers": 0}, "fetches": fetches})
    fetching = replace_struct(TimedFetches(0, 500_000, 4), fetch_quantiles_ns=(500_000,) * 20, cpu_ns=500_000)
    ranks = tuple(replace(f, sidecar=replace_struct(f.sidecar, fetching=fetching)) for f in measures.job.ranks)
    measures = replace(measures, job=replace(measures.job, ranks=ranks), settings=ranks[0].sidecar)
    assert made_us(measures) == pytest.approx([bound_us] * 2)
