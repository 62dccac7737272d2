"""A rank that is late over the whole run is told by timers, whatever the traced steps hold, and without a trace."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from captured import meeting_in_backward, timed_steps, with_sidecars
from labelled_runs import Runs, candidates

from ddprof.analyzers.catalogue import catalogue
from ddprof.analyzers.facts.model import SCRIPT_CALLS, Phase
from ddprof.analyzers.job.assemble import job_facts
from ddprof.analyzers.job.measures import Measures, measure
from ddprof.analyzers.job.script.alone import Alone
from ddprof.analyzers.job.whole_run.missing_ranks import late_missing_rank, missing_rank_notes
from ddprof.analyzers.job.whole_run.own_times import called_ns, late_shares
from ddprof.analyzers.rules.straggler_host import _with_those_timed, takes_longer
from ddprof.findings import Abstention, Basis, Candidate
from ddprof.sidecar import StepMedians, StepTimes

MS, STEP_MS = 1_000_000, 30.0


def timed(more_ms: float, every: int = 1, stopped: int = 0, count: int = 60) -> dict[str, Any]:
    """Steps of 30 ms: 4 are outside the backward pass, `more_ms` more in every n-th and 15 in `stopped` of seven."""
    own_ms = [4.0 + 0.3 * (at % 5) + more_ms * (at % every == 0) + 15.0 * (at % 7 < stopped) for at in range(count)]
    steps = zip(timed_steps([STEP_MS * MS] * count), own_ms, strict=True)
    return {"steps": [step | {"backward_ns": int((STEP_MS - own) * MS)} for step, own in steps]}


def ran(share: float, waited: float) -> dict[str, Any]:
    return {"cpu_waits": {"run": {"dur_ns": 10**9, "cpu_ns": int(share * 1e9), "waited_ns": int(waited * 1e9)}}}


def lacking(record: dict[str, Any], ms: float) -> dict[str, Any]:
    """The steps longer by what each lacks a CPU for, outside its backward pass."""
    more = {"waited_ns": int(ms * MS) + MS, "backward_waited_ns": MS}
    shorter = [step | more | {"backward_ns": int(step["backward_ns"] - ms * MS)} for step in record["steps"]]
    return record | {"steps": shorter} | ran(0.3, ms / STEP_MS)


def untimed(record: dict[str, Any], *indices: int) -> dict[str, Any]:
    steps = [step | {"backward_ns": None} if step["index"] in indices else step for step in record["steps"]]
    return record | {"steps": steps}


@pytest.mark.parametrize(
    ("late", "others", "share"),
    [
        (timed(8.0), timed(0.0), 8 / STEP_MS),
        (timed(18.0, every=3), timed(0.0), 6 / STEP_MS),  # in the mean alone
        (untimed(timed(8.0), 20), timed(0.0), 8 / STEP_MS),  # a step whose timers one rank lacks is left out
        (timed(8.0), timed(0.0, stopped=3), 8 / STEP_MS),  # the machine stops the others: in the median alone
        (timed(24.0, every=4), timed(0.0), 6.0 / STEP_MS),  # in twelve steps: unlikely, though 3.8 standard errors
        (timed(24.0, every=4, count=44), timed(0.0, count=44), 6 / STEP_MS),  # in eight: but no machine keeps such time
        *((timed(2.0), timed(0.0), 0.0), (timed(0.0, stopped=1), timed(0.0), 0.0)),  # little; chance
        (timed(8.0, count=12), timed(0.0, count=12), 0.0),  # a short run
        (timed(8.0) | ran(0.4, 0.6), timed(0.0) | ran(0.2, 0.3), 8 / STEP_MS),  # it computes more, and waits so
        (timed(8.0) | ran(0.6, 0.0), timed(0.0) | ran(0.2, 0.0), 0.4),  # most of it in its backward pass
        (timed(8.0) | ran(0.2, 0.6), timed(0.0) | ran(0.2, 0.3), 0.0),  # it had no CPU
        (lacking(timed(0.0), 8.0), lacking(timed(0.0), 0.0), 0.0),  # likewise, as each step counts
        (lacking(timed(8.0), 12.0), lacking(timed(0.0), 12.0), 8 / STEP_MS),
    ],
)
def test_who_is_late_over_the_run(labelled: Runs, late: dict[str, Any], others: dict[str, Any], share: float) -> None:
    measures = measure(meeting_in_backward(labelled("clean.ddp"), others, late, others).job)
    shares, _ = late_shares(measures.job.ranks)
    assert shares.tolist() == pytest.approx([0.0, share, 0.0, 0.0], abs=0.03)
    said, rank = candidates("straggler.unexplained", measures), measures.job.rank_ids[1]
    assert [one.ranks for one in said] == ([(rank,)] if share else [])
    assert not share or (takes_longer(measures, (rank,)) and np.isclose(said[0].ceiling_us, measures.timed_us[1]))


def test_ranks_that_are_late_alike_are_named_together(labelled: Runs) -> None:
    late, others = timed(8.0), timed(0.0)
    measures = measure(meeting_in_backward(labelled("clean.ddp"), others, late, late, others).job)
    (said,) = candidates("straggler.unexplained", measures)
    assert said.ranks == measures.job.rank_ids[1:3] and "take longer than the others by up to" in said.summary
    alone = {at: Alone("train.py:8 count()", "", 8_000.0, 0.0) for at in (1, 2)}
    measures = replace(measures, alone=alone)
    assert [_with_those_timed(measures, np.array([at])).tolist() for at in (1, 0)] == [[1, 2], [0]]


def test_the_host_of_a_device_waits_for_it_in_any_call(labelled: Runs) -> None:
    assert not np.any(late_shares(with_sidecars(labelled("clean.ddp"), timed(0.0), timed(8.0), timed(0.0)).job.ranks))


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


@pytest.mark.parametrize(("without", "left"), [(("data",), 1.0), (("backward",), 1.0), (("optimizer",), 0.0)])
def test_what_is_called_inside_a_phase_is_taken_off_once(labelled: Runs, without: tuple[str, ...], left: float) -> None:
    """A sharded optimizer sends parameters within its step."""
    facts = labelled("clean.ddp").job.ranks[0]
    start, end = facts.phase_time(Phase.OPTIMIZER)
    called = SCRIPT_CALLS.table({"start_ns": start, "end_ns": end, "call": np.zeros(len(start), np.uint8)})
    steps = [StepTimes(collective_ns=9 * MS)]
    assert called_ns(replace(facts, script_calls=called), steps, without).tolist() == [left * 9 * MS]
