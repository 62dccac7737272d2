"""Ranks are compared over what all of them recorded whole: damage to one file makes nobody slow."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from gloo_traces import TENSOR, Events, in_steps, operator, transfer
from labelled_runs import Runs, run_of

from ddprof.analyzers.diagnose import diagnose
from ddprof.analyzers.facts.model import RankFacts, Work
from ddprof.analyzers.facts.work import issued_ns, step_of_launch
from ddprof.analyzers.job.assemble import job_facts
from ddprof.analyzers.job.scope import ONE_STEP_LEFT, out_of_scope
from ddprof.analyzers.job.steps.recorded_by_all import NO_COMMON_STEP, NOTHING_WHOLE, Comparable, _block, comparable
from ddprof.tables import NULL


def with_steps(facts: RankFacts, *positions: int) -> RankFacts:
    return replace(facts, steps=facts.steps.take(np.array(positions)))


def without(facts: RankFacts, table: str, step: int, share: float) -> RankFacts:
    """A rank that lost a share of the rows of a table that were issued in one step."""
    rows = getattr(facts, table)
    lo, hi = (int(bound[step]) for bound in facts.steps.bounds)
    inside = np.flatnonzero((issued_ns(rows) >= lo) & (issued_ns(rows) < hi))
    kept = np.setdiff1d(np.arange(len(rows)), inside[: round(share * len(inside))])
    comms = facts.comms.take(kept) if table == "comms" else facts.comms
    if table == "device_ops":
        comms = comms.take(np.flatnonzero(np.isin(comms["device_op"], kept)))
        comms = comms.replace(device_op=np.searchsorted(kept, comms["device_op"]))
    return replace(facts, **{table: rows.take(kept), "comms": comms})


def kept(found: Comparable) -> list[tuple[int | None, list[int]]]:
    """Rank and steps, from 0, of what is compared."""
    first = min(int(f.steps["index"][0]) for f in found.ranks)
    return [(f.identity.rank, (f.steps["index"] - first).tolist()) for f in found.ranks]


def test_healthy_ranks_and_programs_with_fewer_kernels_in_one_step_are_compared_as_they_are(labelled: Runs) -> None:
    for name in ("clean.ddp", "clean.fsdp", "clean.tpdp", "clean.pp", "straggler.imbalance", "host.gc"):
        ranks = labelled(name).job.ranks
        assert comparable(ranks) == Comparable(ranks)
    ranks = [without(f, "device_ops", 2, 0.1) for f in labelled("straggler.imbalance").job.ranks]
    assert comparable(ranks) == Comparable(tuple(ranks))


def test_steps_that_some_rank_lacks_in_whole_or_in_part_are_left_out_on_all(labelled: Runs) -> None:
    a, b, c, d = labelled("straggler.imbalance").job.ranks  # five steps
    found = comparable([with_steps(a, 0, 1, 2, 3), b, with_steps(c, 1, 2, 3, 4), d])
    assert kept(found) == [(rank, [0, 1, 2]) for rank in range(4)]
    assert "3 steps that all ranks recorded" in found.notes[0].effect
    for table, share in (("comms", 0.3), ("device_ops", 0.1)):
        found = comparable([a, without(b, table, 4, share), c, d])
        assert kept(found) == [(rank, [0, 1, 2, 3]) for rank in range(4)]
        assert "lacks events that its peers recorded" in found.notes[0].issue


@pytest.mark.parametrize(("torn", "steps"), [((2,), [0, 1]), ((0, 2), [1])])
def test_a_cpu_rank_is_compared_where_it_has_no_holes(torn: tuple[int, ...], steps: list[int], tmp_path: Path) -> None:
    def play(rank: int, at_us: float) -> Events:
        step = round(at_us / 100_000)
        count = 20 + step if rank == 1 and step in torn else 60
        called = [operator(rank, "aten::mm", at_us + k * 1_000, 900.0) for k in range(count)]
        return [*called, transfer(rank, "gloo:all_reduce", at_us + 60_000, 2_000.0, **TENSOR)]

    run = in_steps(tmp_path / "run", 4, 100_000.0, play)
    assert [f.steps["index"].tolist() for f in run.job.ranks] == [steps, steps]
    assert not run.report.findings and (out_of_scope(run.job) == ONE_STEP_LEFT) == (len(steps) == 1)


@pytest.mark.parametrize("is_torn", [False, True])
def test_a_loop_that_data_decides_loses_nothing_and_a_hole_does(tmp_path: Path, is_torn: bool) -> None:
    """Unlike counts in every step, and on rank 0 far fewer in the third; what all steps run is there, or is not."""
    rounds = {0: (40, 44, 12, 37), 1: (35, 48, 41, 33)}

    def play(rank: int, began: float) -> Events:
        step = round(began / 100_000.0)
        every = 20 - 8 * (is_torn and (rank, step) == (0, 2))
        names = [*(f"aten::op{n}" for n in range(every)), *["aten::tanh"] * rounds[rank][step]]
        return [operator(rank, name, began + 1_000.0 * n, 500.0) for n, name in enumerate(names)]

    assert len(in_steps(tmp_path / "run", 4, 100_000.0, play).job.ranks[0].steps) == (2 if is_torn else 4)


def test_a_rank_that_does_more_in_most_of_its_steps_lacks_nothing_in_the_others(labelled: Runs) -> None:
    """One rank saves in three steps of five, and copies for that; in the others it is like its peers."""
    saver, *rest = labelled("straggler.imbalance").job.ranks
    ops = saver.device_ops
    kernels = np.flatnonzero(ops["work"] == Work.COMPUTE)
    inside = [np.flatnonzero(step_of_launch(saver)[kernels] == step)[-8:] for step in (0, 2, 4)]
    more = ops.take(np.sort(np.concatenate((np.arange(len(ops)), kernels[np.concatenate(inside)]))))
    ranks = (replace(saver, device_ops=more), *rest)
    alike = tuple(replace(f, comms=f.comms.take(np.empty(0, np.int64))) for f in ranks)
    assert comparable(alike) == Comparable(alike)


def test_a_rank_with_too_few_or_nowhere_whole_steps_is_left_out_and_said(labelled: Runs) -> None:
    """Its steps are no measure of one another, and of two ranks neither is the usual one."""
    whole, torn, *_ = labelled("clean.ddp").job.ranks
    for step in range(len(torn.steps)):
        torn = without(torn, "device_ops", step, 0.3 + 0.02 * step)
    assert comparable([whole, torn]).why_not == NOTHING_WHOLE
    a, b, *rest = labelled("clean.ddp").job.ranks  # three steps
    found = comparable([a, with_steps(b, 0), *rest])
    assert kept(found) == [(rank, [0, 1, 2]) for rank in (0, 2, 3)]
    assert found.notes[0].issue.startswith("rank 1 recorded too few")
    job = job_facts([a, with_steps(b, 0), *rest])
    assert (job.rank_ids, job.missing_ranks) == ((0, 2, 3), (1,))
    assert comparable([replace(a, counts={**a.counts, "whole": 0}), b]).why_not == NOTHING_WHOLE


def test_ranks_that_share_no_step_are_not_compared(labelled: Runs) -> None:
    run = labelled("straggler.compute")
    assert "straggler.compute" in {f.id for f in diagnose(run.measures, run.pricer).findings}
    apart = run_of([with_steps(run.job.ranks[0], 0), with_steps(run.job.ranks[2], 1, 2)])
    assert apart.job.not_compared == NO_COMMON_STEP
    said = diagnose(apart.measures, apart.pricer)
    assert not [f.id for f in said.findings if f.id.startswith("straggler")]
    reasons = {a.id: a.reason for a in said.abstentions}
    assert NO_COMMON_STEP in reasons["straggler.compute"] and NO_COMMON_STEP in reasons["straggler.host"]


def test_of_files_with_holes_in_different_steps_the_steps_that_all_hold_are_compared(labelled: Runs) -> None:
    a, b, c, d = labelled("straggler.imbalance").job.ranks  # five steps
    first = int(a.steps["index"][0])

    def torn(facts: RankFacts, step: int) -> RankFacts:
        return replace(with_steps(facts, *[p for p in range(5) if p != step]), torn_steps=(first + step,))

    found = comparable([torn(a, 1), torn(b, 0), c, torn(d, 2)])
    assert {tuple(f.steps["index"] - first) for f in found.ranks} == {(3, 4)}
    assert (comparable([torn(a, 1)]).ranks[0].steps["index"] - first).tolist() == [2, 3, 4]


def test_work_launched_before_the_recording_is_of_no_step(labelled: Runs) -> None:
    ranks = list(labelled("clean.ddp").job.ranks)
    early = ranks[0].device_ops["start_ns"] < ranks[0].steps["end_ns"][0]
    launch_ns = np.where(early, NULL, ranks[0].device_ops["launch_ns"])
    ahead = replace(ranks[0], device_ops=ranks[0].device_ops.replace(launch_ns=launch_ns, launch_end_ns=launch_ns))
    assert (step_of_launch(ahead)[early] == -1).all() and (step_of_launch(ranks[0])[early] == 0).any()


@pytest.mark.parametrize(("counts", "torn_steps"), [({"whole": 0}, ()), ({}, (7,))])
def test_files_without_an_end_are_left_out(labelled: Runs, counts: dict[str, int], torn_steps: tuple[int, ...]) -> None:
    """Batches differ from step to step, and the first whole step of one file may be the second of another."""
    ranks = [replace(f, step_source="inferred") for f in labelled("straggler.imbalance").job.ranks]
    cut = [replace(with_steps(f, 0), counts={**f.counts, **counts}, torn_steps=torn_steps) for f in ranks]
    found = comparable([*ranks[:-1], cut[-1]])
    assert [f.identity.rank for f in found.ranks] == [f.identity.rank for f in ranks[:-1]]
    assert "recorded too few" in found.notes[0].issue
    assert comparable([with_steps(f, *range(1 + p % 2)) for p, f in enumerate(ranks)]).why_not == ""
    assert comparable([ranks[0], cut[-1]] if counts else cut).why_not == NOTHING_WHOLE


def test_a_file_without_launches_that_ends_early_is_not_compared_beyond_its_end(labelled: Runs) -> None:
    def without_launches(facts: RankFacts) -> RankFacts:
        unknown = np.full(len(facts.device_ops), NULL, np.int64)
        return replace(facts, device_ops=facts.device_ops.replace(launch_ns=unknown, launch_end_ns=unknown))

    ranks = [without_launches(f) for f in labelled("straggler.imbalance").job.ranks]
    assert comparable(ranks).ranks == tuple(ranks)
    for step in (2, 3, 4):
        ranks[1] = without(ranks[1], "device_ops", step, 1.0)
    assert kept(comparable(ranks)) == [(rank, [0, 1]) for rank in range(4)]


def test_a_rank_without_a_device_or_of_which_copies_alone_were_recorded_is_left_out(labelled: Runs) -> None:
    """Its device computed what its peers' did: waiting for those that have kernels is no rank's lateness."""
    ranks = labelled("straggler.imbalance").job.ranks
    ops = ranks[0].device_ops
    host = replace(ranks[0], is_device_rank=False, device_ops=ops.take(np.arange(0)))
    assert [rank for rank, _ in kept(comparable([host, *ranks[1:]]))] == [1, 2, 3]
    copies = np.flatnonzero(ops["work"] == Work.COPY)
    assert len(copies)
    less = {"device_ops": ops.take(copies), "counts": {**ranks[0].counts, "kernels": 0}}
    found = comparable([*[replace(f, **less, comms=f.comms.take(copies[:0])) for f in ranks[:3]], ranks[3]])
    assert [rank for rank, _ in kept(found)] == [3] and found.why_not == NOTHING_WHOLE


def test_ranks_that_count_their_own_steps_are_paired_once_a_rank_without_steps_is_left_out(labelled: Runs) -> None:
    """Some files lost their marks, one of them shows no step at all."""
    a, b, c, d = labelled("straggler.imbalance").job.ranks
    start, end = (bound[[0, -1]][[i]] for i, bound in enumerate(a.steps.bounds))
    window = a.steps.take(np.array([0])).replace(index=np.zeros(1, np.int64), start_ns=start, end_ns=end)
    blind = replace(a, step_source="inferred", steps=window)
    first = int(b.steps["index"][0])
    alone = replace(d, step_source="inferred", steps=d.steps.replace(index=d.steps["index"] - first + 900))
    found = comparable([blind, b, c, alone])
    assert kept(found) == [(rank, [0, 1, 2, 3, 4]) for rank in (1, 2, 3)]
    assert "recorded too few" in found.notes[0].issue


def test_a_rank_of_one_step_is_not_compared_with_ranks_of_several(labelled: Runs) -> None:
    first, *several = (replace(f, step_source="annotation") for f in labelled("straggler.compute").job.ranks)
    found = comparable([with_steps(first, 0), *several])
    assert [rank for rank, _ in kept(found)] == [1, 2, 3] and found.notes


def test_the_largest_block_begins_and_ends_where_steps_differ() -> None:
    whole = np.ones((16, 5_000), bool)  # every pair of steps would take minutes
    whole[3, 1_000] = False
    assert _block(whole) == (list(range(16)), 1_001, 5_000)
