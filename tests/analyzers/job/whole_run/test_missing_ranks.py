"""Ranks without a trace: their timers decide whether exposed communication can be judged."""

from dataclasses import replace

import pytest
from labelled_runs import Runs

from ddprof.analyzers.catalogue import catalogue
from ddprof.analyzers.job.assemble import job_facts
from ddprof.analyzers.job.measures import Measures, measure
from ddprof.analyzers.job.whole_run.missing_ranks import late_missing_rank, missing_rank_notes
from ddprof.findings import Abstention, Basis, Candidate
from ddprof.sidecar import StepMedians

MS = 1_000_000
EVEN = {"step_ns": 100 * MS, "data_ns": MS, "forward_ns": 20 * MS, "backward_ns": 70 * MS, "optimizer_ns": 2 * MS}


def test_a_missing_rank_is_said_and_blamed_on_nobody(labelled: Runs) -> None:
    job = job_facts([f for f in labelled("straggler.compute").job.ranks if f.identity.rank != 2])
    assert job.missing_ranks == (2,) and any("was not traced: 2" in note.issue for note in job.health)
    assert not job.instances["complete"].any()


def traced(labelled: Runs, name: str, timers: dict[int, dict[str, int]]) -> Measures:
    """The run as if only ranks 0 and 1 had been traced, with these timers of others."""
    part = labelled(name).only(0, 1)
    known = {rank: StepMedians(**times) for rank, times in {0: EVEN, 1: EVEN, **timers}.items()}
    return measure(replace(part.job, step_times=known))


def others(labelled: Runs, name: str, **late_ns: int) -> dict[int, dict[str, int]]:
    """Timers of ranks 2 and up; `late_ns`: of rank 3 only."""
    return {rank: {**EVEN, **(late_ns if rank == 3 else {})} for rank in range(2, labelled(name).job.world_size)}


@pytest.mark.parametrize("name", ["comm.bandwidth_bound", "comm.no_overlap"])
def test_judged_on_a_weaker_basis_where_all_timers_are_even(labelled: Runs, name: str) -> None:
    (whole,) = labelled(name).said(name)
    (said,) = catalogue()[name].detect(traced(labelled, name, others(labelled, name)))
    assert isinstance(said, Candidate) and isinstance(whole, Candidate)
    assert (whole.basis, said.basis) == (Basis.RECORDED, Basis.DEDUCED)


@pytest.mark.parametrize(("name", "explained"), [("comm.bandwidth_bound", True), ("comm.no_overlap", False)])
def test_not_judged_without_timers_unless_bytes_explain_it_or_late(labelled: Runs, name: str, explained: bool) -> None:
    (unknown,) = catalogue()[name].detect(traced(labelled, name, {}))
    if explained:  # buckets of several sizes at one rate
        assert isinstance(unknown, Candidate) and unknown.basis is Basis.DEDUCED
    else:  # one huge bucket
        assert isinstance(unknown, Abstention) and "cannot be separated" in unknown.reason
    (late,) = catalogue()[name].detect(traced(labelled, name, others(labelled, name, data_ns=40 * MS)))
    assert isinstance(late, Abstention) and "rank 3 was not traced" in late.reason


def test_the_rank_that_is_late_and_where_and_waiting_in_backward_is_not_lateness(labelled: Runs) -> None:
    name = "comm.bandwidth_bound"
    late = late_missing_rank(traced(labelled, name, others(labelled, name, data_ns=40 * MS)).job)
    assert late is not None and (late.rank, late.where, late.excess_us) == (3, "in its data loader", 39_000)
    (note,) = missing_rank_notes(traced(labelled, name, others(labelled, name, step_ns=130 * MS)).job)
    assert "30 ms per step more than the median rank outside forward, backward and optimizer" in note.issue
    assert "--ranks 0,3" in note.effect
    timers = others(labelled, name, step_ns=200 * MS, backward_ns=170 * MS)
    assert late_missing_rank(traced(labelled, name, timers).job) is None
    assert late_missing_rank(traced(labelled, name, {}).job) is None
