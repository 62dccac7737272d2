"""Threads of the script that compute on the cores of the ranks."""

from dataclasses import replace

import pytest
from captured import on_cpu
from labelled_runs import Runs
from sampled_stacks import totals, with_stacks

from ddprof.analyzers.rules.evidence.few_cores import threads_take_cores

ID, LINE = "host.stalled", "train.py:60 pack()"


@pytest.mark.parametrize(
    ("cores", "waited", "cost"),
    [
        ((0.0, 0.0, 0.0, 0.9), 0.2, 0.9 / 4),  # what it takes
        ((0.9, 0.9, 0.9, 0.9), 0.2, 0.2 / 0.7),  # what ranks wait
        ((0.0, 0.0, 0.0, 0.2), 0.2, None),  # it takes little
        ((0.0, 0.0, 0.0, 0.9), 0.02, None),  # ranks have their CPUs, as beside a thread that waits for the interpreter
        ((0.0, 0.0, 0.0, 0.0), 0.2, None),
    ],
)
def test_what_threads_take(labelled: Runs, cores: tuple[float, ...], waited: float, cost: float | None) -> None:
    run = labelled("clean.ddp")
    times = [{"dur_ns": 10**9, "cpu_ns": 5 * 10**8, "waited_ns": int(waited * 10**9)} for _ in cores]
    windows = [
        spent | {"beside": [{"name": "pack", "cpu_ns": int(used * 10**9)}] if used else []}
        for spent, used in zip(times, cores, strict=True)
    ]
    processors = {"usable": 4, "local_ranks": 4, "cores": "0-3"}
    measures = on_cpu(run, *({"processors": processors, "cpu_waits": {"windows": [one]}} for one in windows))
    seen = totals(("rest", 0, 9), thread="pack")
    ranks = [replace(with_stacks(f, ("train.py", 60, "pack", None)), script_totals=seen) for f in measures.job.ranks]
    told = threads_take_cores(replace(measures, job=replace(measures.job, ranks=tuple(ranks))), ID)
    assert (told is not None) is (cost is not None)
    if told is not None:
        assert told.ranks == ((run.job.rank_ids[3],) if cores[0] == 0.0 else ())
        assert told.lost_us == pytest.approx(cost * measures.step_us, rel=0.01)
        assert f"uses 0.9 of 4 cores, in {LINE}" in told.summary
