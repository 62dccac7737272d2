"""Threads that outnumber the cores of a host are told with the number that has a core each."""

from dataclasses import replace
from pathlib import Path

import pytest
from cpu_loop import cpu_loop
from labelled_runs import Runs, candidates, run_of
from msgspec import structs

from ddprof.analyzers.engine import LoadedRun
from ddprof.analyzers.job.oversubscription import oversubscribed, oversubscription_note, shared_cores
from ddprof.sidecar import CpuTime, CpuWaits, PrecisionSettings, Processors, RankDevice, Sidecar


def made(folder: Path, threads: int, cores: int, waited_share: float = 0.5, machine: int | None = None) -> LoadedRun:
    """Two CPU ranks of a host, whose threads had no core for a share of the traced time."""
    time = CpuTime(dur_ns=10**9, cpu_ns=4 * 10**8, waited_ns=int(waited_share * 10**9))
    precision, processors = PrecisionSettings(num_threads=threads), Processors(cores, local_ranks=2, machine=machine)
    known = Sidecar(precision=precision, processors=processors, cpu_waits=CpuWaits(windows=(time,), run=time))
    return run_of([replace(cpu_loop(folder, rank=at), sidecar=structs.replace(known, rank=at)) for at in range(2)])


@pytest.mark.parametrize(("threads", "waited", "lost"), [(8, 0.5, 0.5), (3, 0.9, 1 - 4 / 6)])
def test_the_number_of_threads_that_fits_is_told(tmp_path: Path, threads: int, waited: float, lost: float) -> None:
    """No more is charged than the ranks' own threads explain."""
    run = made(tmp_path, threads, cores=4, waited_share=waited)
    (candidate,) = candidates("host.stalled", run.measures)
    fixes = [(fix.setting, fix.current, fix.suggested) for fix in candidate.fixes]
    assert fixes == [("OMP_NUM_THREADS", str(threads), "2")]
    assert candidate.lost_us == pytest.approx(lost * run.measures.step_us)
    assert any(found.id == "host.stalled" for found in run.report.findings)  # a busy machine does not withdraw it


@pytest.mark.parametrize(("threads", "cores", "waited"), [(2, 4, 0.5), (1, 1, 0.5), (8, 4, 0.01)])
def test_threads_that_fit_or_do_not_wait_are_not_told(tmp_path: Path, threads: int, cores: int, waited: float) -> None:
    assert candidates("host.stalled", made(tmp_path, threads, cores, waited).measures) == []


@pytest.mark.parametrize(
    ("threads", "cores", "machine", "is_told"),
    [(1, 1, 8, True), (1, 1, 1, False), (1, 1, None, False), (1, 2, 8, False), (4, 1, 8, False)],
)
def test_ranks_that_are_bound_to_few_of_the_machines_cores_are_told(
    tmp_path: Path, threads: int, cores: int, machine: int | None, is_told: bool
) -> None:
    """Several threads of each rank are told in their place."""
    told = candidates("host.stalled", made(tmp_path, threads, cores, machine=machine).measures)
    said = [one for one in told if "2 ranks are bound to 1 of the machine's 8 cores" in one.summary]
    assert len(said) == is_told and (len(told) == is_told or threads > 1)
    assert all(one.lost_us == pytest.approx(0.5 * 22_500.0, rel=0.2) for one in said)


@pytest.mark.parametrize(
    ("bound_to", "local_ranks", "cores"),
    [
        *((("0", "1"), 2, 2), (("0-3", "0-3"), 2, 4)),
        *((("0-1,4", "2-3"), 2, 5), (("0", None), 2, 1)),
        *((("0", "1"), 3, 1), (("0", "x-9"), 2, 1)),
        (("0", "0-99999999999999999999"), 2, 1),
    ],
)
def test_cores_that_ranks_share(tmp_path: Path, bound_to: tuple[str | None, ...], local_ranks: int, cores: int) -> None:
    """The cores count together of which all ranks of the host say that they may use them."""
    ranks = []
    for rank, which in enumerate(bound_to):
        usable = {"0-3": 4, "0-1,4": 3, "2-3": 2}.get(which or "", 1)
        processors = Processors(usable=usable, local_ranks=local_ranks, cores=which)
        ranks.append(replace(cpu_loop(tmp_path, rank=rank), sidecar=Sidecar(rank=rank, processors=processors)))
    assert shared_cores(ranks)[0] == (local_ranks, cores)
    assert bool(oversubscription_note(ranks)) == (local_ranks > cores)


def test_without_the_number_of_threads_nothing_is_known(tmp_path: Path) -> None:
    assert oversubscribed([cpu_loop(tmp_path)]) is None


@pytest.mark.parametrize("uuids", [("a", "b"), ("a", "a"), (None, None)])
def test_ranks_that_forgot_to_set_their_device_are_told(labelled: Runs, uuids: tuple[str | None, ...]) -> None:
    given = zip(labelled("clean.ddp").job.ranks, uuids, strict=False)
    ranks = [replace(facts, sidecar=Sidecar(device=RankDevice(uuid=uuid))) for facts, uuid in given]
    said = [note.issue for note in run_of(ranks).job.health if "share one device" in note.issue]
    assert said == (["ranks 0, 1 share one device"] if uuids == ("a", "a") else [])
