"""One late loader: its rank, and what the others wait for it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from captured import sidecar_of, steps, with_sidecars
from gloo_traces import TENSOR, Events, annotation, operator, transfer, write
from labelled_runs import Labelled, candidate, fires, on_every_rank, only_run, run_of

from ddprof.analyzers.catalogue import catalogue
from ddprof.analyzers.engine import LoadedRun
from ddprof.analyzers.rules.input_starved import late_loaders, workers_fix
from ddprof.sidecar.loading import TimedFetches

ID = "input.straggler"
FETCH = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def test_names_the_rank_of_the_late_loader_and_pins_memory_for_a_device_alone(faulty: Labelled) -> None:
    assert fires(faulty, ID, 3).changes[0].kind == "instant_loader"
    assert "pin_memory=True" in str(workers_fix(faulty.measures, 1_000.0).patch)
    assert "pin_memory" not in str(workers_fix(on_every_rank(faulty.measures, is_device_rank=False), 1_000.0).patch)


def test_a_late_loader_with_fewer_workers_is_told_so_and_gets_as_many_as_its_peers(faulty: Labelled) -> None:
    eight, one = ({"dataloader": {"num_workers": workers}} for workers in (8, 1))
    report = replace(faulty.run, job=with_sidecars(faulty, eight, eight, eight, one).job).report
    (late,) = [finding for finding in report.findings if finding.id == ID]
    assert (3, "1 worker, its peers 8") in [(e.rank, e.text) for e in late.evidence]
    workers = next(fix for fix in late.fixes if fix.setting == "num_workers")
    assert (workers.current, workers.suggested, dict(workers.applies)["num_workers"]) == ("1", "8", 8)
    assert "peers" not in str(candidate(ID, with_sidecars(faulty, eight)).evidence)


@pytest.mark.parametrize(("fetch_ms", "late"), [(1, [3]), (10_000, [])])
def test_workers_of_the_others_that_are_as_slow_clear_a_rank(faulty: Labelled, fetch_ms: int, late: list[int]) -> None:
    """Its peers' queues are a batch ahead: they never wait in the recording, and deliver no batch per step either."""
    measures = with_sidecars(faulty, {"fetching": {"workers": 2, "fetch_ns": fetch_ms * 1_000_000, "samples": 32}})
    assert late_loaders(measures).tolist() == late and bool(list(catalogue()[ID].detect(measures))) is bool(late)


@pytest.mark.parametrize(
    ("waited_ms", "late"),
    [(38, []), (15, [3]), (None, [3])],  # of 40 ms that a batch of rank 3 takes longer than those of its peers
)
def test_workers_without_a_cpu_make_no_rank_late(faulty: Labelled, waited_ms: int | None, late: list[int]) -> None:
    """All ranks share their cores."""
    machine = {"host": "a", "processors": {"cores": "0-3"}}
    peer = {"workers": 2, "fetch_ns": 30_000_000, "cpu_ns": 26_000_000, "samples": 32, "waited_ns": 3_000_000}
    waited = {} if waited_ms is None else {"waited_ns": 3_000_000 + waited_ms * 1_000_000}
    slow = {"workers": 2, "fetch_ns": 70_000_000, "cpu_ns": 26_000_000, "samples": 32, **waited}
    measures = with_sidecars(faulty, *[{"fetching": peer, **machine}] * 3, {"fetching": slow, **machine})
    assert late_loaders(measures).tolist() == late
    if waited_ms == 15:
        (found, *_) = catalogue()[ID].detect(measures)
        assert "37 % on the CPU and 26 % ready to run without one" in str(found)


def shared_host(
    folder: Path,
    late_us: float,
    usual_us: float,
    batch_us: tuple[float, float],
    more_us: tuple[float, ...] = (),
    workers: int = 2,
) -> LoadedRun:
    """Two CPU ranks with so many workers each: rank 0 waits `late_us` for every second batch; `batch_us`: of a worker;
    `more_us`: what the timers of the steps after the trace have beyond the usual wait, rank by rank."""
    ranks: list[Events] = [[], []]
    fetch = FETCH if workers else FETCH.replace("MultiProcessing", "SingleProcess")
    now_us = 0.0
    for step in range(6):
        began_us, waited_us = now_us, (late_us if step % 2 else usual_us, usual_us)
        met_us = began_us + max(waited_us) + 4_000.0
        for rank, events in enumerate(ranks):
            ready_us = began_us + waited_us[rank]
            events += [
                annotation(rank, f"ProfilerStep#{step}", began_us, met_us + 1_500.0 - began_us),
                annotation(rank, fetch, began_us + 10.0, waited_us[rank] - 20.0),
                operator(rank, "aten::mm", ready_us, 3_900.0, **TENSOR),
                operator(rank, "c10d::allreduce_", ready_us + 3_950.0, 40.0, **TENSOR),
                transfer(rank, "gloo:all_reduce", ready_us + 4_000.0, met_us + 1_000.0 - ready_us - 4_000.0, **TENSOR),
                operator(rank, "aten::add_", met_us + 1_010.0, 400.0, **TENSOR),
            ]
        now_us = met_us + 1_500.0
    run = only_run(write(folder, ranks))
    timed = [TimedFetches(workers, int(us * 1e3), 16, (int(us * 1e3),) * 3, int(us * 1e2)) for us in batch_us]
    content = {"dataloader": {"num_workers": workers, "prefetch_factor": 2}, "state": "exit"}
    timers_of = [{"steps": timers(usual_us + more)} for more in more_us] or [{}, {}]
    each = zip(run.job.ranks, timers_of, timed, strict=True)
    return run_of([replace(one, sidecar=sidecar_of(content | own).with_fetching(t)) for one, own, t in each])


def timers(data_us: float) -> list[dict[str, Any]]:
    """Steps of 50 ms, the first ones profiled, with so long a wait for their batch."""
    waits = [{"data_ns": int(1e3 * (data_us + 100 * (at % 7))), "profiled": at < 6} for at in range(40)]
    return [step | wait for step, wait in zip(steps(40, 50_000_000), waits, strict=True)]


def test_a_loader_is_late_by_the_timers_of_the_run_where_the_traced_steps_hold_little(tmp_path: Path) -> None:
    """Its workers take far longer than those of its peer, which keep up."""
    loaders = {}
    for name, batch_us, more_us in (
        ("late", (9_800.0, 500.0), (6_000.0, 0.0)),
        ("alike", (9_800.0, 9_800.0), (6_000.0, 0.0)),
        ("chance", (9_800.0, 500.0), (0.0, 0.0)),
    ):
        run = shared_host(tmp_path / name, 5_500.0, 4_000.0, batch_us, more_us)
        loaders[name] = [(f.ranks, f.recoverable_us) for f in run.report.findings if f.id == ID]
    assert not loaders["alike"] and not loaders["chance"]
    ((ranks, gain),) = loaders["late"]
    assert ranks == (0,) and gain.low < gain.value < gain.high
    share = 6.0 / 50.0  # of the step; traced steps are shorter
    assert gain.value == pytest.approx(share * run.measures.step_us, rel=0.05)


def test_a_rank_whose_workers_keep_ahead_waits_for_no_batch(tmp_path: Path) -> None:
    """Taking a batch over takes it some milliseconds: without the late rank its workers still have each batch ready."""
    run = shared_host(tmp_path, 100_000.0, 4_000.0, (104_000.0, 10_000.0))
    first = run.report.findings[0]
    assert (first.id, first.ranks) == (ID, (0,))
    assert first.recoverable_us.value == pytest.approx(50_000.0 - 2_000.0, rel=0.1)
    run = shared_host(tmp_path, 100_000.0, 4_000.0, (104_000.0, 100_000.0))
    first = run.report.findings[0]
    assert (first.id, first.ranks) == ("input.starved", ())
    # Each fetch of its peer takes long, too, and a batch of its workers a fortieth of a step.
    run = shared_host(tmp_path, 60_000.0, 12_000.0, (64_000.0, 1_000.0))
    assert [(f.id, f.ranks) for f in run.report.findings if f.id.startswith("input.")] == [(ID, (0,))]


def test_what_one_loader_has_beyond_the_others_is_told_of_its_rank_and_what_all_have_of_all(tmp_path: Path) -> None:
    """Ranks that make their own batches: in the traced steps, or by the timers of a run whose trace was made before."""
    run = shared_host(tmp_path / "traced", 40_000.0, 4_000.0, (40_000.0, 4_000.0), workers=0)
    first = run.report.findings[0]
    assert (first.id, first.ranks) == (ID, (0,))
    assert first.recoverable_us.value == pytest.approx(18_000.0, rel=0.1)  # in every second step
    of_all = candidate("input.starved", run.measures)
    assert of_all.ranks == () and of_all.lost_us <= 4_000.0 and of_all.changes[0].ranks == (1,)
    assert run.pricer.gain_us(of_all) == pytest.approx(0.0, abs=1.0)  # while rank 0 is later still
    late = shared_host(tmp_path / "later", 4_000.0, 4_000.0, (4_000.0, 4_000.0), (30_000.0, 0.0), workers=0)
    (found,) = (finding for finding in late.report.findings if finding.id == ID)
    assert found.ranks == (0,) and "typical one 3.98 ms" in found.fixes[0].why, found.fixes[0].why
    # A core that is a third slower makes its batches a third slower.
    slower = shared_host(tmp_path / "slower", 4_000.0, 4_000.0, (5_300.0, 4_000.0), (1_300.0, 0.0), workers=0)
    assert ID not in {finding.id for finding in slower.report.findings}


def test_where_one_rank_alone_loads_no_shards_are_to_be_balanced(faulty: Labelled) -> None:
    measures = faulty.measures
    assert "rebalance" in candidate(ID, measures).fixes[0].suggested
    loader_us = measures.host_spans_us["dataloader"]
    alone_us = np.where(loader_us < loader_us.max(), 0.0, loader_us)
    alone = replace(measures, host_spans_us={**measures.host_spans_us, "dataloader": alone_us})
    fix = candidate(ID, alone).fixes[0]
    assert "rebalance" not in fix.suggested and fix.why.endswith("no other rank loads")
