"""Meetings of ranks without an event, situations that only look like one, and how such meetings stand in the facts."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import meeting_hosts
import numpy as np
import pytest
from kineto_run import Script, in_step
from labelled_runs import run_of
from meeting_hosts import KERNEL_US, LAYERS, STEPS, Work, facts_of, job_of, longer_kernels, nothing_more, train

from ddprof.analyzers.engine import LoadedRun
from ddprof.analyzers.facts.names import INFERRED, OP_CODE
from ddprof.analyzers.job.assemble import job_facts
from ddprof.analyzers.job.model import JobFacts
from ddprof.causes import CAUSE_CODE
from ddprof.intervals import intersect, length, union
from ddprof.tables import NULL


def met(job: JobFacts) -> list[int]:
    """Who came last in each inferred rendezvous (NULL: nobody who was recorded)."""
    return [int(late) for late in job.instances["late"][job.instances["op"] == OP_CODE[INFERRED]]]


@pytest.mark.parametrize("ranks", [2, 3, 8])
@pytest.mark.parametrize("make", [longer_kernels, meeting_hosts.longer_python])
def test_the_others_wait_for_who_is_late_in_every_step(tmp_path: Path, ranks: int, make: Callable[[int], Work]) -> None:
    late = ranks - 1
    assert met(job_of(train(ranks, make(late)), tmp_path)) == [late] * STEPS


def test_many_that_wait_once_met_and_who_was_not_recorded_is_not_last(tmp_path: Path) -> None:
    found = met(job_of(train(4, meeting_hosts.saving_once(1)), tmp_path))
    assert 1 in found and len(found) <= STEPS
    assert met(job_of(train(2, meeting_hosts.saving_once(1)), tmp_path)) == []

    def more(script: Script, rank: int, step: int) -> None:
        longer_kernels(3, 4_000.0)(script, rank, step)
        script.launch("gemm", 300.0 * ((rank + step) % 3))  # they arrive apart

    job = job_of(train(4, more), tmp_path, only=[0, 1, 2])
    assert met(job) == [NULL] * STEPS and (job.blame["culprit"] == NULL).all()
    assert met(job_of(train(4, longer_kernels(2)), tmp_path, only=[0, 2])) == [1] * STEPS


@pytest.mark.parametrize("steps", [2, STEPS])
@pytest.mark.parametrize("shift_us", [0.0, 731.0, -90_000.0])
def test_clocks_that_nothing_else_connects_are_aligned_by_it(tmp_path: Path, shift_us: float, steps: int) -> None:
    scripts = train(4, longer_kernels(2), steps=steps)
    facts = meeting_hosts.facts_of(scripts, tmp_path, shift_us=[0.0, 0.0, shift_us, shift_us])
    hosts = zip(facts, "aabb", strict=True)
    job = job_facts([replace(f, identity=replace(f.identity, host=host)) for f, host in hosts])
    assert met(job) == [2] * steps and abs(job.clock.domains["b"].offset_ns / 1e3 - shift_us) < 60.0


def equal_python(script: Script, rank: int, step: int) -> None:
    """Every rank runs the same Python, which nothing records, while its device idles."""
    script.synchronise("cudaStreamSynchronize")
    script.idle(2_000.0 + 15.0 * ((7 * rank + 3 * step) % 5))
    script.launch("gemm", KERNEL_US, times=10)


def own_python(script: Script, rank: int, step: int) -> None:
    """One rank logs at the end of its steps."""
    if rank == 0:
        script.synchronise("cudaStreamSynchronize")
        script.idle(2_500.0)


def own_fetch(script: Script, rank: int, step: int) -> None:
    """Every rank waits for its own loader."""
    name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
    script.host(name, 2_000.0 + 400.0 * ((rank + step) % 3), "user_annotation")
    script.launch("gemm", KERNEL_US)


def many_pauses(script: Script, rank: int, step: int) -> None:
    """Python after every value that is read, of much the same length on all ranks."""
    for layer in range(12):
        script.synchronise("cudaStreamSynchronize")
        script.idle(200.0 + 9.0 * ((5 * rank + 3 * step + layer) % 7))
        script.launch("gemm", KERNEL_US)


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("more", [nothing_more, equal_python, own_python, own_fetch, many_pauses, longer_kernels(0)])
def test_ranks_that_do_not_meet_wait_for_nobody(tmp_path: Path, ranks: int, more: Work) -> None:
    assert met(job_of(train(ranks, more, meets=False), tmp_path)) == []
    if more in (equal_python, own_fetch, many_pauses):  # nor is a pause of its own a meeting beside one
        assert len(met(job_of(train(ranks, more), tmp_path))) <= STEPS


def test_a_collective_that_was_recorded_explains_that_all_resume(tmp_path: Path) -> None:
    def work(script: Script, rank: int, step: int) -> None:
        script.idle(1_000.0)  # the same Python on all
        script.launch("gemm", KERNEL_US * (1.4 if rank == 1 else 1.0), times=30)

    job = job_of(in_step(4, STEPS, work, "cudaStreamSynchronize"), tmp_path)
    assert met(job) == [] and np.unique(job.instances["late"]).tolist() == [1]


LATE_US = 1_500.0


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> LoadedRun:
    return run_of(facts_of(train(4, longer_kernels(1, LATE_US)), tmp_path_factory.mktemp("run")))


def test_waiting_is_booked_once_and_charged_to_what_made_the_rank_late(run: LoadedRun) -> None:
    for rank, causes in run.report.ledger.per_rank.items():
        parts = {cause: us for cause, us in causes.items() if cause != "wall_us"}
        assert abs(sum(parts.values()) - causes["wall_us"]) < 0.001 * causes["wall_us"]
        waited = parts["comm_wait"]
        assert waited < 60.0 if rank == 1 else abs(waited - LATE_US) < 0.1 * LATE_US, (rank, waited)
        assert parts["host_sync"] < 100.0
    for facts in run.job.ranks:
        assert length(intersect(union(*facts.gaps.bounds), union(*facts.exposed.bounds))) == 0
    blame = run.job.blame
    mine = blame["culprit"] == 1
    assert blame["dur_ns"][mine].sum() > 0.9 * blame["dur_ns"].sum()
    assert blame["dur_ns"][mine & (blame["cause"] == CAUSE_CODE["compute"])].sum() > 0.9 * blame["dur_ns"].sum()
    (finding,) = [f for f in run.report.findings if run.report.severity_of(f) != "info"]
    assert finding.ranks == (1,) and finding.id.startswith("straggler")
    assert abs(finding.recoverable_us.value - LATE_US) < 0.08 * LATE_US
    assert (run.pricer.error or 0.0) < 0.01


def test_it_is_marked_as_inferred_in_tables_that_stay_in_order_and_carries_no_traffic(run: LoadedRun) -> None:
    for facts in run.job.ranks:
        mine = [row for row, name in enumerate(facts.device_ops["name"]) if facts.strings[name] == INFERRED]
        assert len(mine) == STEPS
        assert len(np.unique(facts.device_ops["track"][mine])) == 1  # a stream of its own
    assert not any("barrier" in e.text for f in run.report.findings for e in f.evidence)
    assert any("resumed together" in note.issue for note in run.report.health)
    assert INFERRED not in {traffic.op for traffic in run.measures.comm.traffic}
    for facts in run.job.ranks:
        assert (np.diff(facts.device_ops["start_ns"]) >= 0).all() and (np.diff(facts.comms["start_ns"]) >= 0).all()
        ops = facts.comms["device_op"]
        assert (facts.device_ops["start_ns"][ops] == facts.comms["start_ns"]).all()
        assert (facts.device_ops["comm"][ops] == np.arange(len(facts.comms))).all()
        assert len(facts.device_ops) == STEPS * (LAYERS + 2 + (facts.identity.rank == 1))
