"""A busy machine is said in place of accusing a rank, and hides no rank that is slow by itself."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from busy_ranks import Held, busy_ranks, by_chance, never
from captured import meeting_in_backward, on_cpu, timed_steps, with_sidecars
from labelled_runs import Runs, latest, only_run

from ddprof.analyzers.catalogue import catalogue
from ddprof.analyzers.diagnose import Diagnosis, diagnose
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.job.measures import Measures, measure
from ddprof.analyzers.job.script.alone import Alone
from ddprof.analyzers.job.script.threads import BusyThread
from ddprof.analyzers.job.whole_run.cpu_waits import CpuShares, busy_machine_note
from ddprof.analyzers.rules.evidence.late_line import with_line
from ddprof.analyzers.trust.busy_machine import ON_HOSTS, contradicted_by_the_run, explained_by_a_busy_machine
from ddprof.analyzers.verdict import verdict
from ddprof.findings import Basis, Candidate, Change
from ddprof.report.model import Steps

Shares = dict[str, Any]


def waits(on_cpu: float, waited: float, run: tuple[float, float] | None = None, cores: str = "") -> Shares:
    """A sidecar with these shares of the time, in a window and in the rest of the run."""
    shares = (on_cpu, waited), run or (on_cpu, waited)
    window, rest = ({"dur_ns": 10**9, "cpu_ns": int(c * 1e9), "waited_ns": int(w * 1e9)} for c, w in shares)
    ever = {name: window[name] + rest[name] for name in window}
    where = {"host": "a", "processors": {"usable": 2, "cores": cores}} if cores else {}
    return {"cpu_waits": {"windows": [window], "run": ever}, **where}


def accusation(measures: Measures, *ranks: int, **parts: Any) -> Candidate:
    """A finding that these ranks cost the job a share of its step."""
    return replace(Candidate("straggler.compute", "late", 0.3 * measures.step_us, Basis.COMPARED, ranks), **parts)


def explained(measures: Measures, *ranks: int, **parts: Any) -> str | None:
    return explained_by_a_busy_machine(accusation(measures, *ranks, **parts), measures)


WAITED = "rank 1 had no CPU for 60 % of the traced time, the other ranks for 20 %"
OF_RUN = "rank 1 had no CPU for 60 % of the run, the other ranks for 20 %"  # which timers of the run are judged by
SHARED = waits(0.3, 0.0, cores="0-1")


@pytest.mark.parametrize(
    ("peer", "late", "why"),
    [
        (waits(0.3, 0.2), waits(0.3, 0.6), WAITED),  # rank 1 waits for a CPU, rank 0 as well at other times
        (waits(0.3, 0.0), waits(0.3, 0.6, run=(0.3, 0.5)), None),  # something runs on rank 1's cores all the time
        # The same where the scheduler gives all ranks the same cores: it is its choice, whom it lets wait.
        (waits(0.3, 0.2, run=(0.3, 0.0), cores="0-1"), waits(0.3, 0.6, run=(0.3, 0.5), cores="0-1"), WAITED),
        (waits(0.3, 0.0, cores="0"), waits(0.3, 0.6, run=(0.3, 0.5), cores="1"), None),
        (waits(0.3, 0.3), waits(0.5, 0.5), None),  # both wait as much for what they compute: rank 1 computes more
        (waits(0.3, 0.02), waits(0.9, 0.05), None),  # nobody waits to speak of
        (waits(0.3, 0.6, run=(0.3, 0.2)), waits(0.3, 0.2, run=(0.35, 0.6)), OF_RUN),
        ({}, {}, None),  # not recorded
        # It moves them: what is left of 30 % in the traced steps over the whole run is chance, or the rank's own.
        (SHARED, waits(0.4, 0.0, run=(0.35, 0.0), cores="0-1"), "may use the same cores"),
        (SHARED, waits(0.4, 0.0, run=(0.4, 0.0), cores="0-1"), None),
        (SHARED, waits(0.4, 0.0, run=(0.35, 0.0), cores="1"), None),
    ],
)
def test_what_all_share_explains_a_rank(labelled: Runs, peer: Shares, late: Shares, why: str | None) -> None:
    basis = Basis.TIMED if why is OF_RUN else Basis.COMPARED
    reason = explained(on_cpu(labelled("clean.ddp"), peer, late, peer), 1, basis=basis)
    assert (reason is None) == (why is None) and (why or "") in (reason or "")


@pytest.fixture
def busy(labelled: Runs) -> Measures:
    """CPU ranks that all wait for a CPU: any of them may be late by that."""
    return on_cpu(labelled("clean.ddp"), waits(0.3, 0.4))


def test_what_a_late_rank_runs_alone_is_no_chance(busy: Measures) -> None:
    assert explained(busy, 1) is not None
    more = 0.3 * (np.arange(len(busy.job.ranks)) == 1)
    alone = replace(busy, alone={1: Alone("train.py:9 heartbeat()", "", 3_000.0, 0.0)})
    for named in (alone, replace(busy, compute=replace(busy.compute, more_work=more))):
        assert explained(named, 1) is None and explained(named, 0) is not None


def test_a_rank_that_is_fed_more_in_every_step_is_no_chance(labelled: Runs) -> None:
    run, wait = labelled("clean.ddp"), waits(0.3, 0.6)
    steps = run.job.ranks[0].steps["index"].tolist()
    for elements, is_no_chance in ((200, True), (102, False)):
        plain, fed = ({**wait, "batches": [{"step": s, "elements": e} for s in steps]} for e in (100, elements))
        reason = explained(on_cpu(run, plain, fed, plain), 1, id="straggler.imbalance")
        assert ("no CPU" in (reason or ""), reason is None) == (not is_no_chance, is_no_chance)


def test_a_thread_that_one_rank_has_alone_is_no_chance(busy: Measures, monkeypatch: pytest.MonkeyPatch) -> None:
    spins = {1: BusyThread(line := "train.py:9 watch()", 0.6)}
    for asks in ("trust.busy_machine", "rules.evidence.late_line"):
        monkeypatch.setattr(f"ddprof.analyzers.{asks}.threads_alone", lambda _: spins)
    assert explained(busy, 1) is None and explained(busy, 0) is not None
    told = with_line(busy, accusation(busy, 1))
    assert (told.summary, told.fixes[0].setting) == (f"late; it has a thread that computes, in {line}", line)
    assert with_line(busy, accusation(busy, 0)) == accusation(busy, 0)
    loop = replace(busy, alone={1: Alone("train.py:40 <module>", "train.py:31 main()", 9_000.0, 100.0)})
    assert with_line(loop, accusation(loop, 1)).summary == told.summary  # beside it the whole loop is long


def test_ranks_that_take_turns_are_explained_by_what_all_wait_and_devices_are_not(labelled: Runs) -> None:
    run = labelled("clean.ddp")
    few, many = (explained(on_cpu(run, waits(0.4, w)), id="straggler.imbalance") for w in (0.1, 0.3))
    assert few is None and "30 %" in (many or "")
    devices = with_sidecars(run, waits(0.3, 0.2), waits(0.3, 0.6), waits(0.3, 0.2))
    assert explained(devices, 1) is None and explained(devices, 1, id="straggler.host") is not None
    assert explained(with_sidecars(run, waits(0.4, 0.3)), id="comm.bandwidth_bound") is None


@pytest.mark.parametrize(
    ("change", "waited", "withdrawn"),
    [
        *(("scale_transfer", 0.3, True), ("merge_buckets", 0.3, True)),
        ("scale_transfer", 0.1, False),  # the transfers lose more than the machine explains
        ("drop_needless", 0.3, False),  # counted, whatever the machine does
        ("drop_meetings", 0.3, False),
    ],
)
def test_transfers_of_cpu_ranks_wait_for_a_cpu_too(labelled: Runs, change: str, waited: float, withdrawn: bool) -> None:
    measures = on_cpu(labelled("clean.ddp"), waits(0.4, waited))
    reason = explained(measures, id="comm.bandwidth_bound", changes=(Change(change),))
    assert (f"no CPU for {100 * waited:.0f} %" in (reason or "")) == withdrawn and (reason is None) != withdrawn


@pytest.mark.parametrize(("cap_mib", "stands"), [(0.5, True), (25.0, False), (None, False)])
def test_buckets_that_the_script_makes_small_are_no_chance(labelled: Runs, cap_mib: float | None, stands: bool) -> None:
    measures = on_cpu(labelled("clean.ddp"), {**waits(0.4, 0.3), "ddp": {"bucket_cap_mb": cap_mib}})
    assert (explained(measures, id="comm.latency_bound") is None) == stands


def test_a_busy_machine_is_noted_and_ranks_stopped_by_chance_are_not_accused(labelled: Runs, tmp_path: Path) -> None:
    (note,) = busy_machine_note(with_sidecars(labelled("clean.ddp"), waits(0.4, 0.1), waits(0.4, 0.3)).job.ranks)
    assert "busy" in note.issue and "rank 1 for 30 %" in note.issue
    for quiet in (with_sidecars(labelled("clean.ddp"), waits(0.4, 0.01)), labelled("clean.ddp")):
        assert not busy_machine_note(quiet.job.ranks)
    # Recorded without any counter: the operators of both ranks tell that their threads were stopped.
    report = only_run(busy_ranks(tmp_path / "run", by_chance, by_chance)).report
    assert [f.id for f in report.ranked_findings() if f.ranks] == []


@pytest.mark.parametrize(
    ("in_operator", "in_python"),
    [
        (by_chance, lambda rank, step, number: 40_000.0 if rank and number == 3 else 0.0),  # it sleeps in each step
        (alone := lambda rank, step, number: rank * by_chance(rank, step, number), alone),  # nobody else is stopped
        (lambda rank, step, number: 4_000.0 * rank + by_chance(1 - rank, step, number), never),  # its cores are slow
    ],
)
def test_a_rank_that_chance_does_not_make_late_is_named(tmp_path: Path, in_operator: Held, in_python: Held) -> None:
    report = only_run(busy_ranks(tmp_path / "run", in_operator, in_python)).report
    assert {f.ranks for f in report.ranked_findings() if f.ranks} == {(1,)}


@pytest.mark.parametrize(("slow", "named"), [(1.0, set()), (1.5, {(1,)})])
def test_short_operators_tell_a_slow_rank_from_long_ones_that_are_stopped(
    tmp_path: Path, slow: float, named: set[tuple[int, ...]]
) -> None:
    """Three of four long operators are stopped on rank 1 in each step, and one on rank 0 in nearly each."""
    usual_us = lambda number: 20_000.0 if number % 2 else 200.0  # noqa: E731

    def held(rank: int, step: int, number: int) -> float:
        is_stopped = number in (1, 3, 5) if rank else number == 7 and step > 0
        return (16_000.0 if rank else 20_000.0) * is_stopped + rank * (slow - 1) * usual_us(number)

    run = only_run(busy_ranks(tmp_path / "run", held, usual_us=usual_us))
    assert {f.ranks for f in run.report.ranked_findings() if f.ranks} == named
    # Ranks that are slow in turn by no more than they are stopped are so by chance.
    lost_us = run.measures.cpu_stops.total_ns.mean() / 1e3 / run.measures.steps if run.measures.cpu_stops else 0.0
    for share, stands in ((1.5, False), (2.5, True)):
        turns = Candidate("straggler.imbalance", "in turn", share * lost_us, Basis.COMPARED)
        assert (explained_by_a_busy_machine(turns, run.measures) is None) == stands


@pytest.mark.parametrize("identifier", ON_HOSTS)
def test_what_a_busy_machine_explains_is_gone(labelled: Runs, monkeypatch: pytest.MonkeyPatch, identifier: str) -> None:
    run = labelled("clean.ddp")
    measures = with_sidecars(run, waits(0.3, 0.2), waits(0.3, 0.6), waits(0.3, 0.2))
    accused = iter([accusation(measures, 1, id=identifier)])
    rule = replace(catalogue()[identifier], detect=lambda _: accused, detect_rest=None)
    monkeypatch.setattr("ddprof.analyzers.diagnose.catalogue", lambda: {identifier: rule})
    found = diagnose(measures, run.pricer)
    why = [a.reason for a in found.abstentions if a.id == identifier]
    assert not found.findings and "the machine is busy" in why[0]
    idle, steps = with_sidecars(labelled("host.sync"), waits(0.3, 0.5)), Steps(5, "profiler_step", measures.step_us)
    said, plain = verdict(measures, found, steps), verdict(idle, Diagnosis((), (), (), ()), steps)
    assert said.bound == "none" and "run the job on a quiet machine" in said.headline
    assert "; ranks had no CPU for 50 % of the time: run the job on a quiet machine" in plain.headline


@pytest.mark.parametrize(("others_ms", "own"), [(0, True), (300, True), (350, False), (None, False)])
def test_who_takes_the_cpus_that_ranks_lack_decides_the_advice(
    labelled: Runs, others_ms: int | None, own: bool
) -> None:
    """Each rank lacks 650 ms; other processes take so much for each of them on the CPUs that all may use."""
    measures = labelled("host.sync")
    ranks = len(measures.job.ranks)
    lacking = waits(0.3, 0.5, (0.6, 0.15), cores="0-1")
    if others_ms is not None:
        lacking["cpu_waits"]["run"] |= {"process_ns": 10**9, "machine_ns": ranks * (10**9 + others_ms * 10**6)}
    measures = with_sidecars(measures, *[lacking] * ranks)
    steps, nothing = Steps(5, "profiler_step", measures.step_us), Diagnosis((), (), (), ())
    headline, (note,) = verdict(measures, nothing, steps).headline, busy_machine_note(measures.job.ranks)
    assert ("its own threads and workers compete" in headline) is own is ("their own threads" in note.issue)
    assert ("quiet machine" in headline) is not own
    if others_ms is not None:  # ranks that lack little themselves wait for threads that move their data
        lacking = waits(0.3, 0.06, cores="0-1")
        lacking["cpu_waits"]["run"] |= {"process_ns": 10**6, "machine_ns": 10 * others_ms * 10**6}
        measures = with_sidecars(labelled("host.sync"), *[lacking] * ranks)
        words = "had no CPU for 6.0 % of the time, others took"
        assert (words in verdict(measures, nothing, steps).headline) is (others_ms > 0)


STRAGGLER = "straggler.host"
TRACED = range(5, 10)
US = 1_000
OWN_US, BACKWARD_US = 20_000, 10_000


def timed(traced_us: float, others_us: float, count: int = 60, every: int = 1) -> dict[str, Any]:
    """A rank that takes so much longer beside its backward pass in traced steps and in every N-th of the others."""
    more_us = [traced_us if at in TRACED else others_us * (at % every == 0) for at in range(count)]
    lengths_ns = ((OWN_US * (1 + 0.01 * (at % 3 - 1)) + BACKWARD_US + us) * US for at, us in enumerate(more_us))
    return {"steps": [step | {"backward_ns": BACKWARD_US * US} for step in timed_steps(lengths_ns, TRACED)]}


def refuted(labelled: Runs, traced: float, others: float, count: int = 60, every: int = 1) -> str | None:
    """Verdict on a finding whose late rank has so many times its lateness in the traced and the other steps."""
    bare = labelled(STRAGGLER).measures
    late = latest(bare)
    us = float(bare.late_us[late])
    sidecars = [timed(0.0, 0.0, count) for _ in bare.job.ranks]
    sidecars[late] = timed(traced * us, others * us, count, every)
    measures = measure(meeting_in_backward(labelled(STRAGGLER), *sidecars).job)
    rank = bare.job.rank_ids[late]
    return contradicted_by_the_run(Candidate(STRAGGLER, "late", us, Basis.COMPARED, (rank,)), measures)


def test_lateness_in_the_traced_steps_alone_is_not_accused(labelled: Runs) -> None:
    assert "only in the traced steps" in (refuted(labelled, 1.0, 0.0) or "")
    measures = labelled(STRAGGLER).measures
    for identifier, ranks in ((STRAGGLER, ()), ("host.checkpoint", (0,))):
        assert contradicted_by_the_run(Candidate(identifier, "", 1.0, Basis.COMPARED, ranks), measures) is None


@pytest.mark.parametrize(("steps", "is_named"), [(1, False), (2, False), (3, True)])
def test_two_steps_of_cpu_ranks_name_nobody(labelled: Runs, steps: int, is_named: bool) -> None:
    """Not even where each rank's waits for a CPU are known: chance makes one of two ranks the latest in both."""
    measures = on_cpu(labelled(STRAGGLER), waits(0.4, 0.1))
    ranks = tuple(replace(facts, steps=facts.steps.take(np.arange(steps))) for facts in measures.job.ranks)
    few = replace(measures, job=replace(measures.job, ranks=ranks), alone={})
    late = measures.job.rank_ids[latest(labelled(STRAGGLER).measures)]
    words = contradicted_by_the_run(Candidate(STRAGGLER, "late", 1e3, Basis.COMPARED, (late,)), few)
    assert (words is None) is is_named and ("chance may make any rank the latest" in (words or "")) is not is_named


@pytest.mark.parametrize(
    ("fed", "cpu", "others", "stands"),
    [
        (True, 0.6, 0.0, True),  # fed more, as its CPU time says
        (True, 0.6, 0.2, False),  # other processes slowed it as much
        (True, 0.4, 0.0, False),
        (False, 0.6, 0.0, False),
    ],
)
def test_a_rank_that_is_fed_more_is_late_in_backward(
    labelled: Runs, monkeypatch: pytest.MonkeyPatch, fed: bool, cpu: float, others: float, stands: bool
) -> None:
    late = latest(labelled(STRAGGLER).measures)

    def shares(ranks: Sequence[RankFacts]) -> CpuShares:
        is_late = np.arange(len(ranks)) == late
        return CpuShares(np.where(is_late, cpu, 0.4), np.zeros(len(ranks)), (("a", "0-3"),) * len(ranks), others)

    is_fed = lambda ranks, _: np.arange(len(ranks)) == (late if fed else -1)  # noqa: E731
    monkeypatch.setattr("ddprof.analyzers.trust.busy_machine.fed_more_each_step", is_fed)
    monkeypatch.setattr("ddprof.analyzers.trust.busy_machine.run_shares", shares)
    assert (refuted(labelled, 1.0, 0.0) is None) == stands


@pytest.mark.parametrize(
    ("traced", "others", "count", "every"),
    [
        (1.0, 1.0, 60, 1),  # late all along
        (20.0, 5.0, 60, 1),  # late all along, and in the traced steps by chance four times as much
        (0.1, 0.0, 60, 1),  # late in its backward pass, where the timers hold waiting too
        (1.0, 0.0, 14, 1),  # hardly a step beside the traced ones
        (1.0, 30.0, 60, 30),  # seldom, and then for long: the mean is uncertain
    ],
)
def test_what_timers_leave_open_stands(labelled: Runs, traced: float, others: float, count: int, every: int) -> None:
    assert refuted(labelled, traced, others, count, every) is None


@pytest.mark.parametrize(("length", "is_told"), [(0.5, True), (0.95, False)])
def test_other_steps_without_room_for_the_lateness_outvote_few_traced_ones(
    labelled: Runs, length: float, is_told: bool
) -> None:
    run = labelled(STRAGGLER)
    lengths_ns = [int(length * run.measures.step_us * US)] * 60
    record = {"steps": [step | {"backward_ns": US} for step in timed_steps(lengths_ns, TRACED)]}
    measures = measure(meeting_in_backward(run, *[record] * len(run.job.ranks)).job)
    measures = replace(measures, late_us=np.full(len(run.job.ranks), 0.4 * measures.step_us))
    told = contradicted_by_the_run(Candidate(STRAGGLER, "late", 1.0, Basis.UNTESTED, (1,)), measures)
    assert ("others take" in (told or "")) == is_told
