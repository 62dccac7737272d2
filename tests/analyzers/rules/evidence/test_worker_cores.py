"""Workers that compute on the cores of the ranks, told by what both waited for a CPU."""

from typing import Any

import pytest
from captured import with_sidecars
from labelled_runs import Runs

from ddprof.analyzers.rules.evidence.worker_cores import taken_cores, taking

ID, WORLD = "input.starved", 4


def record(step_us: float, cores: float, waited: float, of_worker: float | None = 0.3) -> dict[str, Any]:
    """A rank of a host of 4 cores whose workers compute on so many; shares of the time without a CPU, of both."""
    cpu_ns = int(cores * step_us * 1e3)
    fetching: dict[str, Any] = {"workers": 2, "fetch_ns": 2 * cpu_ns, "cpu_ns": cpu_ns, "samples": 32}
    if of_worker is not None:
        fetching["waited_ns"] = int(of_worker * fetching["fetch_ns"])
    spent = {"dur_ns": 10**9, "cpu_ns": 5 * 10**8, "waited_ns": int(waited * 10**9)}
    processors = {"usable": 4, "local_ranks": WORLD, "cores": "0-3"}
    return {"fetching": fetching, "processors": processors, "cpu_waits": {"windows": [spent], "run": spent}}


@pytest.mark.parametrize(
    ("cores", "waited", "of_worker", "cost"),
    [
        ((0.6, 0.6, 0.6, 0.6), 0.2, 0.3, 0.2 / 0.7),
        ((0.01, 0.01, 0.01, 1.57), 0.2, 0.3, 0.2 / 0.7),  # those of one rank
        ((0.6, 0.6, 0.6, 0.6), 0.02, 0.3, None),  # ranks have their CPUs
        ((0.6, 0.6, 0.6, 0.6), 0.2, 0.0, None),  # workers have theirs: something else takes those of the ranks
        ((0.15, 0.15, 0.15, 0.15), 0.2, 0.3, 0.15),  # what they take is less than the waits
        ((0.04, 0.04, 0.04, 0.04), 0.2, 0.3, None),  # they take little
        ((0.6, 0.6, 0.6, 0.6), 0.2, None, None),  # not counted
    ],
)
def test_what_workers_take(
    labelled: Runs, cores: tuple[float, ...], waited: float, of_worker: float | None, cost: float | None
) -> None:
    run = labelled("clean.ddp")
    assert len(run.job.ranks) == WORLD
    per_batch_us = run.measures.step_us / run.measures.host_counts["dataloader"][0]
    measures = with_sidecars(run, *[record(per_batch_us, each, waited, of_worker) for each in cores])
    taken = taken_cores(measures)
    assert (taken is not None) is (cost is not None)
    one, several = taking(measures, ID, alone=True), taking(measures, ID, alone=False)
    if taken is None:
        assert one is several is None
        return
    assert (taken.cost, taken.least) == (pytest.approx(cost, rel=0.01), pytest.approx(0.7 * taken.cost))
    assert taken.cores.tolist() == pytest.approx(list(cores), abs=0.01)
    found = one if 0.01 in cores else several
    assert found is not None and (one is None or several is None)
    assert found.ranks == ((run.job.rank_ids[3],) if 0.01 in cores else ())
    used = f"{max(cores):.1f}" if 0.01 in cores else f"{max(cores):.0%}".replace("%", " %")
    assert f"use {used} of 4 cores" in found.summary and "wait for a CPU for 20 % of the time" in found.summary
