"""The busy time of a rank, divided among what it ran, is that of the ledger to the nanosecond."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from gloo_traces import Events, in_steps, operator
from labelled_runs import Runs

from ddprof.analyzers.engine import LoadedRun, Options, load_runs
from ddprof.analyzers.facts.model import Work
from ddprof.analyzers.facts.operations import RankWork, rank_work
from ddprof.causes import CAUSE_CODE
from ddprof.readers import read

OF_WORK = {
    Work.COMPUTE: ("compute",),
    Work.COMM: ("comm_wait", "comm_transfer", "pipeline_bubble"),  # a bubble is waiting for another stage
    Work.COPY: ("memcpy",),
}
LABELLED = ("clean.fsdp", "pipeline.bubble", "input.pageable_copy", "comm.no_overlap", "host.checkpoint")
REAL = (
    *(f"traces/cpu_gloo/{name}" for name in ("fsdp2-tf-2r-base", "ddp-cnn-2r-slowrank")),
    *(f"traces/multi_rank/{name}" for name in ("dlrm_ddp_v100_8ranks", "megatron_pp_last_stage_slow_8gpu")),
    *("traces/single_rank/torchrec_v100_rank1", "traces/formats/horovod_timeline"),
    "oracle_samples/09_slow_stage_pp2/traces",
)


def works(run: LoadedRun) -> list[RankWork]:
    return [rank_work(facts, lambda path: read(run.sources[path])) for facts in run.job.ranks]


def check(run: LoadedRun) -> None:
    """Each kind of work has the ledger's time of its causes, in every step, and no moment is in two pieces."""
    for position, work in enumerate(works(run)):
        busy, facts = work.busy, run.job.ranks[position]
        kind = work.operations["work"][busy["operation"]]
        ledger = run.job.ledger.take(run.job.ledger["rank"] == position)
        for of, causes in OF_WORK.items():
            booked, found = np.zeros((2, len(facts.steps)), np.int64)
            for cause in causes:
                mine = ledger["cause"] == CAUSE_CODE[cause]
                np.add.at(booked, ledger["step"][mine], ledger["dur_ns"][mine])
            np.add.at(found, busy["step"][kind == of], (busy["end_ns"] - busy["start_ns"])[kind == of])
            assert found.tolist() == booked.tolist(), (run.label, position, of)
        order = np.argsort(busy["start_ns"])
        assert (busy["start_ns"][order][1:] >= busy["end_ns"][order][:-1]).all()


@pytest.mark.parametrize("name", LABELLED)
def test_it_sums_to_the_ledger_of_every_step(labelled: Runs, name: str) -> None:
    check(labelled(name).run)


@pytest.mark.parametrize("name", REAL)
def test_it_sums_to_the_ledger_of_real_traces(shared_run: Callable[[str], Path], name: str) -> None:
    for run in load_runs([str(shared_run(name))], Options(workers=1, cache=False)):
        check(run)


def test_an_operator_of_a_cpu_rank_has_its_own_time_alone(tmp_path: Path) -> None:
    """Two ranks whose training thread calls aten::linear, which calls aten::addmm, and then waits for its peer."""
    spans = (("linear", 100, 5_000), ("addmm", 600, 4_000), ("copy_", 700, 1_000), ("add_", 6_000, 500))

    def play(rank: int, at: float) -> Events:
        return [operator(rank, f"aten::{name}", at + start, dur) for name, start, dur in spans]

    run = in_steps(tmp_path / "run", 3, 10_000.0, play)
    check(run)
    for facts, work in zip(run.job.ranks, works(run), strict=True):
        assert not facts.is_device_rank
        rows, own = work.operations.take(work.busy["operation"]), Counter[tuple[str, str]]()
        lengths = (work.busy["end_ns"] - work.busy["start_ns"]).tolist()
        for name, outer, length in zip(rows["name"], rows["operator"], lengths, strict=True):
            own[facts.strings[name], facts.strings[outer]] += length
        inside_us = {"linear": 3 * 1_000, "addmm": 3 * 3_000, "copy_": 3 * 1_000}
        expected = {(f"aten::{name}", "aten::linear"): 1_000 * us for name, us in inside_us.items()}
        assert own == {**expected, ("aten::add_", "aten::add_"): 3 * 500_000}
