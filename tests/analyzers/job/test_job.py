"""A job from its ranks: assembled, matched and booked, clocks aligned, slow devices measured, and what ranks wait for
others by what made those late."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from corpus import SCENARIOS
from gloo_traces import Events, all_reduce, annotation, in_steps
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from labelled_runs import Runs

from benchmarks.oracle.small_runs import HOST_OFFSET_US
from ddprof.analyzers.facts.model import NO_STRING, RankFacts, Work
from ddprof.analyzers.facts.names import OP_CODE
from ddprof.analyzers.facts.work import company, step_of_launch
from ddprof.analyzers.job.assemble import job_facts
from ddprof.analyzers.job.charged import waited_for_part_us, waited_us
from ddprof.analyzers.job.clock import align
from ddprof.analyzers.job.matching import Matched, match
from ddprof.analyzers.job.model import JobFacts, rows_of_steps
from ddprof.analyzers.job.slowdown import compute_slowdown, interference
from ddprof.analyzers.trust.believed import levelled_us
from ddprof.causes import CAUSE_CODE, HOST_CAUSES
from ddprof.model import HealthNote
from ddprof.sidecar import Sidecar, TracedWindow
from ddprof.tables import NULL

NAMES = ("clean.ddp", "clean.fsdp", "clean.tpdp", "clean.pp", "straggler.compute", "input.straggler", "comm.slow_link")


def test_steps_numbered_in_disorder_are_met_by_their_numbers(labelled: Runs) -> None:
    facts = labelled("clean.ddp").job.ranks[0]
    numbers = facts.steps["index"]
    turned = replace(facts, steps=facts.steps.replace(index=numbers[::-1]))
    rows = rows_of_steps(turned, np.append(numbers, numbers.max() + 1))
    assert rows.tolist() == [*reversed(range(len(numbers))), -1]


def test_ranks_in_any_order_give_the_same_job_and_keep_what_their_reader_noted(labelled: Runs) -> None:
    job = labelled("clean.tpdp").job
    turned = job_facts(job.ranks[::-1])
    assert turned.rank_ids == job.rank_ids and turned.step_ns == job.step_ns
    assert turned.ledger["dur_ns"].tolist() == job.ledger["dur_ns"].tolist()
    job = labelled("clean.ddp").job
    note = HealthNote("rank1.json: the file ends early", "later events are missing")
    cut = replace(job.ranks[1], counts={**job.ranks[1].counts, "whole": 0}, health=(note,))
    found = job_facts([job.ranks[0], cut, *job.ranks[2:]])
    assert found.rank_ids == tuple(r for r in job.rank_ids if r != job.rank_ids[1])
    assert [n.rank for n in found.health if n.issue == note.issue] == [job.rank_ids[1]]
    assert not [n.issue for n in found.health if "not traced" in n.issue]  # its file was read


def test_what_windows_left_out_is_said(labelled: Runs) -> None:
    job = labelled("clean.ddp").job
    windows = (TracedWindow(), TracedWindow(left_out=("stacks",)), TracedWindow(left_out=("stacks", "shapes")))
    found = job_facts([replace(facts, sidecar=Sidecar(windows=windows)) for facts in job.ranks])
    assert "of 3 windows 1 without stacks, 1 without stacks and shapes" in str(found.health)


def test_a_debugger_that_was_left_on_is_said_with_its_ranks(labelled: Runs) -> None:
    watched, others = Sidecar(watchers=("sys.settrace: train.spy",)), Sidecar()
    ranks = [
        replace(f, sidecar=watched if at in (0, 2) else others) for at, f in enumerate(labelled("clean.ddp").job.ranks)
    ]
    issues = [note.issue for note in job_facts(ranks).health]
    assert [issue for issue in issues if "settrace" in issue] == [
        "ranks 0, 2: sys.settrace: train.spy is called as Python runs"
    ]


def memberships(job: JobFacts) -> set[frozenset[tuple[int, int]]]:
    """Instances as sets of (rank position, row of its comms)."""
    found: dict[int, set[tuple[int, int]]] = {}
    columns = (job.members[name].tolist() for name in ("instance", "rank", "comm"))
    for instance, rank, comm in zip(*columns, strict=True):
        found.setdefault(instance, set()).add((rank, comm))
    return {frozenset(group) for group in found.values()}


@pytest.mark.parametrize(("level", "is_said"), [("detail", True), ("INFO", False)])
def test_collectives_that_are_checked_first_are_said(labelled: Runs, level: str, is_said: bool) -> None:
    sidecar = Sidecar(communication_environment={"TORCH_DISTRIBUTED_DEBUG": level})
    first, *others = labelled("clean.ddp").job.ranks
    said = [note.effect for note in job_facts([replace(first, sidecar=sidecar), *others]).health]
    assert any("before each collective" in effect for effect in said) == is_said


@pytest.mark.parametrize("name", NAMES)
def test_every_member_of_every_operation_is_matched(labelled: Runs, name: str) -> None:
    job = labelled(name).job
    assert len(job.instances) and job.instances["complete"].all()
    pairs = np.stack((job.members["instance"], job.members["rank"], job.members["comm"]))
    assert np.unique(pairs, axis=1).shape[1] == pairs.shape[1]
    matched = {(int(r), int(c)) for r, c in zip(job.members["rank"], job.members["comm"], strict=True)}
    assert matched == {(p, row) for p, facts in enumerate(job.ranks) for row in range(len(facts.comms))}


@pytest.mark.parametrize("name", ["clean.ddp", "clean.fsdp", "clean.tpdp"])
def test_order_matches_as_sequence_numbers_do(labelled: Runs, name: str) -> None:
    job = labelled(name).job
    unnumbered = [replace(f, comms=f.comms.replace(seq=np.full(len(f.comms), NULL))) for f in job.ranks]
    assert memberships(job_facts(unnumbered)) == memberships(job)


def test_ranks_differ_in_collectives_only_within_a_step(labelled: Runs) -> None:
    """An optimizer may communicate in every second step, on all ranks."""
    job = labelled("clean.ddp").job
    ranks = [replace(f, comms=f.comms.replace(seq=np.full(len(f.comms), NULL))) for f in job.ranks]

    def differ(chosen: list[RankFacts]) -> bool:
        groups = [np.zeros(len(facts.comms), np.int64) for facts in chosen]
        notes = match(chosen, groups, [(tuple(range(len(ranks))), "")]).notes
        return any("different numbers of collectives" in note.issue for note in notes)

    (in_second, *_) = np.flatnonzero(ranks[0].comms["start_ns"] >= ranks[0].steps["start_ns"][1])
    fewer = [replace(f, comms=f.comms.take(np.delete(np.arange(len(f.comms)), in_second))) for f in ranks]
    assert not differ(ranks) and differ([fewer[0], *ranks[1:]]) and not differ(fewer) and not differ(fewer[:1])


@pytest.mark.parametrize("slow_alone", [False, True])
def test_waiting_for_hosts_is_shared_out_by_the_reason_of_each_culprit(labelled: Runs, slow_alone: bool) -> None:
    measures = labelled("straggler.host").measures
    charged_us = [waited_us(measures, ("host_launch",), np.array([rank])) for rank in range(4)]
    culprits = [int(np.argmax([us.sum() for us in charged_us]))] if slow_alone else [0, 1, 2, 3]
    part_us = measures.launching_us * np.arange(1, 5) / 4
    every_us = measures.launching_us + measures.stalled_us + measures.held_us + measures.script_us
    wanted = sum(part_us[each] / every_us[each] * charged_us[each] for each in culprits if every_us[each])
    found = waited_for_part_us(measures, part_us, np.array(culprits))
    assert found.max() > 0 and found == pytest.approx(np.asarray(wanted))


@pytest.mark.parametrize(
    ("name", "causes"),
    [("straggler.compute", ("compute",)), ("straggler.host", HOST_CAUSES), ("input.straggler", ("dataloader",))],
)
def test_late_ranks_cost_what_they_take_longer_however_they_meet(labelled: Runs, name: str, causes) -> None:
    measures, fault = labelled(name).measures, labelled(name).fault
    late = np.flatnonzero(np.isin(measures.job.rank_ids, fault["culprit_ranks"]))
    assert levelled_us(measures, late, causes) == pytest.approx(fault["recoverable_us"], rel=0.1)
    assert levelled_us(measures, late, ()) == pytest.approx(fault["recoverable_us"], rel=0.1)
    # Waits that no recording tells from transfers are waits.
    ledger = measures.job.ledger
    waits = ledger["cause"] == CAUSE_CODE["comm_wait"]
    moved = ledger.replace(cause=np.where(waits, CAUSE_CODE["comm_transfer"], ledger["cause"]))
    blind = replace(measures, job=replace(measures.job, ledger=moved))
    assert levelled_us(blind, late, causes) == pytest.approx(levelled_us(measures, late, causes))


def test_ranks_that_are_not_late_cost_nothing_nor_do_all_of_them(labelled: Runs) -> None:
    run = labelled("straggler.compute")
    measures, everybody = run.measures, np.arange(len(run.job.ranks))
    late = np.flatnonzero(np.isin(run.job.rank_ids, run.fault["culprit_ranks"]))
    assert levelled_us(measures, np.setdiff1d(everybody, late)[:1], ("compute",)) == 0
    assert levelled_us(measures, everybody, ("compute",)) == 0 == levelled_us(measures, late[:0], ("compute",))


def test_a_range_around_another_of_its_cause_is_one_batch(tmp_path: Path) -> None:
    """Ours of a batch is around torch's."""

    def play(rank: int, began: float) -> Events:
        ours = annotation(rank, "ddprof::data", began, 1_000.0)
        torchs = annotation(rank, "enumerate(DataLoader)#_Iter.__next__", began + 50.0, 900.0)
        return [ours, torchs, *all_reduce(rank, began + 5_000.0, 3_000.0, 500.0)]

    assert in_steps(tmp_path / "run", 5, 10_000.0, play).measures.host_counts["dataloader"].tolist() == [1.0, 1.0]


@pytest.mark.parametrize("name", list(SCENARIOS))
def test_ledger_sums_to_each_step_exactly(labelled: Runs, name: str) -> None:
    job = labelled(name).job
    for position, facts in enumerate(job.ranks):
        mine = job.ledger["rank"] == position
        booked = np.zeros(len(facts.steps), np.int64)
        np.add.at(booked, job.ledger["step"][mine], job.ledger["dur_ns"][mine])
        assert (booked == facts.steps["end_ns"] - facts.steps["start_ns"]).all()
        assert (job.ledger["dur_ns"][mine] >= 0).all()


def test_slowdown_is_of_the_slow_device_alone_and_of_equal_work(labelled: Runs) -> None:
    factor = labelled("straggler.compute").measures.compute.factor
    typical = float(np.median(factor))
    assert factor[2] / typical == pytest.approx(1.3, abs=0.03)
    assert np.abs(np.delete(factor, 2) / typical - 1).max() < 0.02
    # More tokens for the experts of a rank: equally many launches, of other shapes.
    assert labelled("hot expert, with shapes").measures.compute.more_work.max() == 0.0
    timeless = []
    for facts in labelled("straggler.compute").job.ranks:
        ops, (_, beside) = facts.device_ops, company(facts)
        timeless.append(replace(facts, device_ops=ops.replace(end_ns=np.where(beside, ops["end_ns"], ops["start_ns"]))))
    assert interference(timeless) == 0.0


def test_of_a_rank_with_more_steps_the_common_ones_are_compared(labelled: Runs) -> None:
    _, *others = labelled("straggler.compute").job.ranks
    short = compute_slowdown([replace(facts, steps=facts.steps.take(slice(0, 1))) for facts in others], None)
    of_both = compute_slowdown([*others[:-1], replace(others[-1], steps=others[-1].steps.take(slice(0, 1)))], None)
    assert of_both.coverage == pytest.approx(short.coverage)


def test_batches_that_grow_on_all_ranks_hide_no_slow_device(labelled: Runs) -> None:
    """Without shapes a longer batch is the same kernels taking longer, on all ranks of the step alike."""
    ranks = []
    for facts in labelled("straggler.compute").job.ranks:
        ops = facts.device_ops
        longer = 1.0 + 0.4 * np.maximum(0, step_of_launch(facts)) * (ops["work"] == Work.COMPUTE)
        length = ((ops["end_ns"] - ops["start_ns"]) * longer).astype(np.int64)
        unshaped = np.full(len(ops), NO_STRING)
        ranks.append(replace(facts, device_ops=ops.replace(end_ns=ops["start_ns"] + length, shape=unshaped)))
    found = compute_slowdown(ranks, None)
    typical = float(np.median(found.factor))
    assert found.factor[2] / typical == pytest.approx(1.3, abs=0.05)
    assert np.abs(np.delete(found.per_step, 2, axis=0) / typical - 1).max() < 0.1


def shifted(facts: RankFacts, by_ns: int) -> RankFacts:
    names = ("steps", "device_ops", "comms", "exposed", "gaps", "host_spans", "phases", "stream_waits", "host_work")
    tables = {}
    for name in names:
        table = getattr(facts, name)
        times = [c.name for c in table.schema.columns if c.name.endswith("_ns")]
        tables[name] = table.replace(**{t: np.where(table[t] == NULL, NULL, table[t] + by_ns) for t in times})
    return replace(facts, **tables)


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(extra_us=st.floats(-2e6, 2e6))
def test_a_skewed_host_is_found_within_the_stated_error(labelled: Runs, extra_us: float) -> None:
    job = labelled("clean.tpdp").job
    by_ns = round(extra_us * 1e3)
    moved = [shifted(f, by_ns) if f.identity.host == "node01" else f for f in job.ranks]
    clock = job_facts(moved).clock.domains["node01"]
    assert clock.error_ns is not None and clock.error_ns < 100_000
    assert abs(clock.offset_ns - (HOST_OFFSET_US * 1e3 + by_ns)) <= clock.error_ns + 1


def test_a_skewed_clock_changes_no_wait(labelled: Runs) -> None:
    job = labelled("clean.tpdp").job
    moved = job_facts([shifted(f, 10**9) if f.identity.host == "node01" else f for f in job.ranks])
    assert moved.ledger["dur_ns"].tolist() == job.ledger["dur_ns"].tolist()


def test_a_host_is_reached_through_as_few_others_as_can_be(labelled: Runs) -> None:
    """Hosts 0 and 3 meet, and 1, 2 and 3 do: both 1 and 2 are one host away from 3, so their errors are alike."""
    offsets_ns, groups = (0, 7_000_000, -3_000_000, 11_000_000), ((0, 3), (1, 2, 3))
    first = labelled("clean.tpdp").job.ranks[0]
    comms, ranks = first.comms.take(np.zeros(len(groups), np.int64)), []
    for rank, offset_ns in enumerate(offsets_ns):
        start_ns = np.arange(len(groups)) * 1_000_000 + offset_ns
        own = comms.replace(start_ns=start_ns, end_ns=start_ns + 50_000)
        ranks.append(replace(first, identity=replace(first.identity, host=f"node{rank}", rank=rank), comms=own))
    instance = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    each = np.zeros(len(groups), np.int64)
    members = {"rank": np.concatenate(groups), "comm": instance, "side": np.zeros(len(instance), np.int64)}
    instances = {"op": each + OP_CODE["all_reduce"], "group": np.arange(len(groups)), "size_bytes": each}
    domains = align(ranks, Matched(instance=instance, is_message=each.astype(bool), **members, **instances))[0].domains
    assert tuple(domains[f"node{rank}"].offset_ns for rank in range(4)) == offsets_ns
    errors_ns = [domains[f"node{rank}"].error_ns for rank in range(4)]
    assert errors_ns == [0, 1_000, 1_000, 500]  # 500 ns is the least that one comparison is trusted to
