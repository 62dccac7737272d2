"""Calls that send or receive find their kernels, also where kernels were lost."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
from labelled_runs import Runs

from ddprof.analyzers.facts.comms import COALESCED, LOST, _carriers, _spanning
from ddprof.analyzers.facts.extract import rank_facts
from ddprof.analyzers.job.assemble import job_facts
from ddprof.model import Kind, RankTrace

KERNELS, LAUNCHED_NS = np.array([10, 11, 12]), np.array([105, 205, 305])


def carriers(*own: int) -> list[tuple[int, bool]]:
    """For calls at 100, 110, 200, 210, 300 and 310 ns."""
    called_ns = np.array([100, 110, 200, 210, 300, 310])[: len(own)]
    found, lost = _carriers(np.array(own), called_ns, KERNELS, LAUNCHED_NS)
    return list(zip(found.tolist(), lost.tolist(), strict=True))


def test_a_call_has_its_own_kernel_goes_with_the_next_one_or_keeps_its_place() -> None:
    assert carriers(10, COALESCED, 11, 12) == [(10, False), (11, False), (11, False), (12, False)]
    assert carriers(*[COALESCED] * 3) == [(10, False), (11, False), (11, False)]  # no call tells which is its own
    assert carriers(10, LOST, 11) == [(10, False), (11, True), (11, False)]
    assert carriers(10, COALESCED, LOST, COALESCED, 12)[1:4] == [(11, True), (11, True), (12, False)]
    assert carriers(10, 11, 11, 11, 12, LOST)[-1] == (-1, True)  # no later kernel


def test_the_call_around_a_launch_is_the_innermost_that_has_not_ended() -> None:
    events = {"track": np.zeros(3, np.int64), "ts_ns": np.array([40, 0, 10]), "dur_ns": np.array([10, 100, 10])}
    trace: Any = SimpleNamespace(events=events)
    at_ns = np.array([5, 15, 30, 45, 60, 200])
    assert _spanning(trace, np.arange(3), at_ns, np.zeros(6, np.int64)).tolist() == [1, 2, 1, 0, 1, -1]


def without_some(trace: RankTrace, share: float, seed: int) -> RankTrace:
    """Records of kernels of messages lose their kind: no reader sees them as work of the device, nor their launches."""
    kind = trace.events["kind"].copy()
    moves = np.array(["nccl" in s.lower() and "SendRecv" in s for s in trace.strings])[trace.events["name"]]
    gone = (kind == Kind.KERNEL) & moves & (np.random.default_rng(seed).uniform(size=len(kind)) < share)
    kind[gone] = Kind.OTHER
    args = trace.collectives.take(~gone[trace.collectives["row"]])
    return replace(trace, events=trace.events.replace(kind=kind), collectives=args)


def test_lost_kernels_leave_all_other_messages_matched_and_counted(labelled: Runs) -> None:
    run = labelled("slow device in a pipeline")
    lossy = [without_some(trace, 0.04, seed) for seed, trace in enumerate(run.recorded())]
    whole, found = run.job, job_facts([rank_facts(trace) for trace in lossy])
    assert len(found.members) < len(whole.members)
    assert found.not_compared == "" and found.pipeline == whole.pipeline
    messages = found.instances["is_message"].astype(bool) & (found.instances["members"] == 2)
    assert messages.sum() > 0.85 * whole.instances["is_message"].sum()
    longest_ns = found.instances["transfer_ns"][messages].max()
    assert longest_ns <= whole.instances["transfer_ns"].max()  # none is matched with another
