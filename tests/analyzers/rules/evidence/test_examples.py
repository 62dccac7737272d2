"""Every finding leads to an event: an example of what it means, on one rank, with its time on the run's clock."""

from dataclasses import replace

import numpy as np
import pytest
from corpus import FAULTY
from labelled_runs import Runs

from ddprof.analyzers.facts.names import COLLECTIVE_OPS
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.rules.evidence import examples
from ddprof.analyzers.rules.evidence.spans import largest_wait
from ddprof.findings import Evidence

OF_RANKS = ("straggler.compute", "straggler.host", "input.straggler", "comm.slow_link")
NO_EVENT = {"memory.headroom", "input.unsharded"}  # a level and a setting


def _own_clock_ns(measures: Measures, said: Evidence) -> tuple[int, int, int]:
    """Position of the rank, start and end on its own clock."""
    job = measures.job
    assert said.rank is not None and said.start_us is not None and said.end_us is not None
    position = job.rank_ids.index(said.rank)
    shift = job.shift_ns(position)
    return position, round(said.start_us * 1e3) + shift, round(said.end_us * 1e3) + shift


@pytest.mark.parametrize("name", FAULTY)
def test_what_is_found_can_be_jumped_to(labelled: Runs, name: str) -> None:
    run = labelled(name)
    found = [f for f in run.report.findings if f.id == name]
    last_us = max(
        (int(f.steps["end_ns"][-1]) - run.job.clock.offset_ns(p) - run.job.origin_ns) / 1e3
        for p, f in enumerate(run.job.ranks)
    )
    for finding in found:
        timed = [e for e in finding.evidence if e.start_us is not None and e.end_us is not None]
        assert bool(timed) == (name not in NO_EVENT) and all(e.rank in run.report.run.ranks for e in timed)
        assert name not in OF_RANKS or timed[0].rank in finding.ranks  # the first event is the culprit's
        assert all(0 <= (e.start_us or 0.0) < (e.end_us or 0.0) <= last_us + 1.0 for e in timed)


def test_the_culprit_works_from_its_first_step_on_while_the_other_waits(labelled: Runs) -> None:
    measures = labelled("straggler.compute").measures
    work, wait = largest_wait(measures, 2)
    assert (work.start_us, work.end_us) == pytest.approx((wait.start_us, wait.end_us), abs=0.01)
    assert (work.rank, wait.rank != 2) == (2, True)
    position, start, end = _own_clock_ns(measures, work)
    ops = measures.job.ranks[position].device_ops
    held = np.minimum(ops["end_ns"], end) - np.maximum(ops["start_ns"], start)
    assert measures.job.ranks[position].strings[ops["name"][held.argmax()]] == work.event and held.max() > 0
    _, start, end = _own_clock_ns(measures, largest_wait(measures, 2)[0])
    ranks = list(measures.job.ranks)
    middle = (start + end) // 2
    ranks[2] = replace(ranks[2], steps=ranks[2].steps.replace(start_ns=np.maximum(ranks[2].steps["start_ns"], middle)))
    late = replace(measures, job=replace(measures.job, ranks=tuple(ranks)))
    assert _own_clock_ns(late, largest_wait(late, 2)[0])[1:] == pytest.approx((middle, end), abs=2)


def test_the_example_of_a_transfer_is_one_and_is_exposed(labelled: Runs) -> None:
    measures = labelled("comm.bandwidth_bound").measures
    traffic = measures.comm.traffic[0]
    (said,) = examples.exposed_transfer(measures, traffic)
    position, start, end = _own_clock_ns(measures, said)
    members = measures.job.members
    mine = (members["rank"] == position) & (abs(members["ready_ns"] - start) < 2) & (abs(members["end_ns"] - end) < 2)
    (row,) = np.flatnonzero(mine)
    assert COLLECTIVE_OPS[measures.job.instances["op"][members["instance"][row]]] == traffic.op == said.event
    exposed = measures.job.ranks[position].exposed
    assert traffic.exposed_us > 0
    assert (np.minimum(exposed["end_ns"], end) - np.maximum(exposed["start_ns"], start)).max() > 0


def test_examples_are_the_slow_the_waiting_the_longest_and_the_steps_own_events(labelled: Runs) -> None:
    run = labelled("comm.slow_link")
    finding = next(f for f in run.report.findings if f.id == "comm.slow_link")
    said = next(e for e in finding.evidence if e.start_us is not None)
    transfers_ns = run.job.instances["transfer_ns"]
    _, start, end = _own_clock_ns(run.measures, said)
    assert end - start > 1.3 * np.median(transfers_ns[run.job.instances["op"] == COLLECTIVE_OPS.index(str(said.event))])
    measures = labelled("pipeline.bubble").measures
    (said,) = examples.longest_stage_wait(measures)
    position, start, end = _own_clock_ns(measures, said)
    members = measures.job.members
    rows = np.flatnonzero((members["rank"] == position) & (abs(members["start_ns"] - start) < 2))
    assert measures.job.instances["is_message"][members["instance"][rows]].all() and len(rows)
    waits = (members["ready_ns"] - members["start_ns"])[measures.job.instances["is_message"][members["instance"]]]
    assert end - start == pytest.approx(waits.max(), abs=2)
    measures = labelled("compute.precision").measures
    (said,) = examples.longest_fp32_gemm(measures)
    position, start, end = _own_clock_ns(measures, said)
    facts = measures.job.ranks[position]
    assert said.event in {facts.strings[n] for n in facts.kernel_groups["name"][facts.kernel_groups["is_fp32"]]}
    assert end - start >= facts.kernel_groups["median_ns"][facts.kernel_groups["is_fp32"]].max()
    measures = labelled("compute.unfused_optimizer").measures
    (said,) = examples.optimizer_step(measures)
    position, start, end = _own_clock_ns(measures, said)
    ops = measures.job.ranks[position].device_ops
    inside = ((ops["start_ns"] >= start - 1) & (ops["end_ns"] <= end + 1)).sum()
    assert inside >= measures.optimizer_kernels[position] * 0.9
    measures = labelled("clean.ddp").measures
    assert examples.longest_stage_wait(measures) == [] and examples.longest_fp32_gemm(measures) == []
    assert examples.slowest_transfer(measures, (0,), rank=99) == []
