"""The map on a real Dask cluster: scheduler and workers are processes, the traces lie in a store that speaks S3."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
import distributed
import fsspec
import pytest
from distributed import Client
from labelled_runs import drawn

from benchmarks.oracle.small_runs import fault, small_run
from benchmarks.oracle.spec import Model
from ddprof.analyzers.engine import Options, RankResult, analyze, read_facts
from ddprof.analyzers.workers import cluster as mapping_cluster
from ddprof.analyzers.workers.cluster import TASK, connected
from ddprof.analyzers.workers.local import parse_engine
from ddprof.errors import DdprofError, NoUsableInput, UsageError
from ddprof.readers import Source, discover
from ddprof.report.json.contract import to_contract

ENDS_ALONE_S = "600"  # without a scheduler: nobody's test may leave a worker behind


@dataclass(frozen=True)
class DaskCluster:
    """`engine`: what `--engine` takes."""

    engine: str
    workers: tuple[subprocess.Popen[bytes], ...]


@contextmanager
def dask_cluster(folder: Path, workers: int, known_to_all: Mapping[str, str]) -> Iterator[DaskCluster]:
    """A scheduler with that many workers of one thread each and these variables; all of them have joined."""
    known = folder / "scheduler.json"
    with ExitStack() as running:

        def start(*words: str) -> subprocess.Popen[bytes]:
            command = [sys.executable, "-m", "dask", *words, "--no-dashboard", "--scheduler-file", str(known)]
            environment = {**os.environ, "DASK_DISTRIBUTED__ADMIN__LOW_LEVEL_LOG_LENGTH": "0", **known_to_all}
            process = subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.DEVNULL)
            running.callback(process.wait)
            running.callback(process.kill)
            return process

        scheduler = start("scheduler", "--host", "127.0.0.1", "--port", "0")
        alone = ("--nthreads", "1", "--no-nanny", "--death-timeout", ENDS_ALONE_S, "--host", "127.0.0.1")
        started = tuple(start("worker", *alone) for _ in range(workers))
        address = _address(known, scheduler)
        with Client(address, set_as_default=False, timeout=600) as client:
            client.wait_for_workers(workers)
        yield DaskCluster(f"dask://{address.removeprefix('tcp://')}", started)


def _address(known: Path, scheduler: subprocess.Popen[bytes]) -> str:
    while True:
        assert scheduler.poll() is None, "the scheduler did not start"
        try:
            return str(json.loads(known.read_text())["address"])
        except (OSError, ValueError):  # not yet, or not all of it
            time.sleep(0.05)


RANKS, SLOW = 12, 9
ATTEMPTS: list[str] = []  # what the worker, in this process, was asked for
GO_ON = threading.Event()


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small ranks, one of which is slow."""
    small = Model(layers=1, unit_us=390.0, params_per_layer=10_000_000)
    slow = fault("straggler.compute", 0.3, SLOW, mode="all")
    wide = small_run(slow, ranks=RANKS, hosts=4, model=small, loader_us=20_000.0)
    return drawn(wide, tmp_path_factory.mktemp("wide")).traces


@pytest.fixture
def stored(traces: Path, bucket: str) -> str:
    files, path = fsspec.core.url_to_fs(f"{bucket}/run/")
    files.put(f"{traces}/", path, recursive=True)
    return f"{bucket}/run"


@pytest.fixture(scope="module")
def two_workers(s3_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskCluster]:
    """A scheduler and two workers, which know the credentials of the server's buckets."""
    known = {"AWS_ENDPOINT_URL": s3_server, "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    with dask_cluster(tmp_path_factory.mktemp("cluster"), 2, known) as cluster:
        yield cluster


def document(options: Options, path: str | Path) -> bytes:
    (report,) = analyze([path], options)
    return json.dumps(to_contract(report), allow_nan=False).encode()


def test_a_lost_worker_costs_no_rank_and_no_byte_of_the_report(stored: str, two_workers: DaskCluster) -> None:
    here, lost, seen = document(Options(cache=False, workers=1), stored), two_workers.workers[0], []

    def kill_one(done: int, total: int, label: str) -> None:
        seen.append((done, total))
        if done == RANKS // 8:
            lost.kill()
            lost.wait()

    assert document(Options(cache=False, engine=two_workers.engine, progress=kill_one), stored) == here
    assert json.loads(here)["findings"][0]["ranks"] == [SLOW]
    assert seen == [(done, RANKS) for done in range(1, RANKS + 1)] and lost.poll() is not None


def within(workers: int) -> Any:
    """A cluster within this process: its workers' functions see what the test sees."""
    free = {"protocol": "tcp://", "dashboard_address": "127.0.0.1:0"}
    return distributed.LocalCluster(n_workers=workers, threads_per_worker=1, processes=False, **free)


@pytest.fixture(scope="module")
def one_worker() -> Iterator[Any]:
    with within(1) as cluster:
        yield cluster


def engine_of(cluster: Any) -> str:
    return str(cluster.scheduler_address).replace("tcp://", "dask://")


def sources(count: int) -> list[Source]:
    return [Source(f"memory://none/{number}", "kineto") for number in range(count)]


def failed(source: Source, reason: str) -> RankResult:
    return RankResult(source, None, reason)


def results(cluster: Any, work: Any, count: int) -> list[RankResult]:
    with connected(parse_engine(engine_of(cluster)), 1) as found:
        return [result for _, result in sorted(found.results(work, sources(count), failed), key=lambda pair: pair[0])]


def test_a_result_that_is_lost_with_its_worker_is_waited_for(one_worker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dask tells that a result is there, then that its worker has ended, then that another has computed it again."""
    in_order = distributed.as_completed

    def then_lost(futures: Sequence[Any], **options: Any) -> Iterator[Any]:
        for future in in_order(futures, **options):
            future._state.lose()
            future.client.loop.call_later(0.05, future._state.finish)
            yield future

    monkeypatch.setattr(distributed, "as_completed", then_lost)
    assert [one.error for one in results(one_worker, damaged, 3)] == [f"memory://none/{n}: damaged" for n in range(3)]


def reached_late(source: Source) -> RankResult:
    ATTEMPTS.append(source.path)
    return RankResult(source, None, "connection reset" if len(ATTEMPTS) < 2 else None, len(ATTEMPTS) < 2)


def never_reached(source: Source) -> RankResult:
    ATTEMPTS.append(source.path)
    return RankResult(source, None, f"{source.label}: cannot be read: connection reset", was_unreachable=True)


def damaged(source: Source) -> RankResult:
    ATTEMPTS.append(source.path)
    return RankResult(source, None, f"{source.label}: damaged")


@pytest.mark.parametrize(
    ("work", "attempts", "error"),
    [
        (reached_late, 2, None),
        (never_reached, 1 + mapping_cluster.RETRIES, "memory://none/0: cannot be read: connection reset"),
        (damaged, 1, "memory://none/0: damaged"),
    ],
)
def test_what_was_not_reached_is_tried_again(one_worker: Any, work: Any, attempts: int, error: str | None) -> None:
    ATTEMPTS.clear()
    (result,) = results(one_worker, work, 1)
    assert (len(ATTEMPTS), result.error) == (attempts, error)


def defective(source: Source) -> RankResult:
    raise ZeroDivisionError(f"of {source.path}\nand more")


def test_a_defect_on_a_worker_or_its_end_is_told_in_one_line(one_worker: Any) -> None:
    first, second = results(one_worker, defective, 2)
    assert first.error == "memory://none/0: failed on a Dask worker: ZeroDivisionError: of memory://none/0"
    assert second.source.path == "memory://none/1"

    class Ended:
        def exception(self) -> Exception:
            return distributed.KilledWorker("ddprof-read-0", None, 3)

    cluster = mapping_cluster.ConnectedCluster(parse_engine("dask"), "", distributed, None)
    (source,) = sources(1)
    words = "memory://none/0: 4 Dask workers ended while they read it, as for want of memory"
    assert cluster._result(Ended(), source, failed).error == words


def first_only(source: Source) -> RankResult:
    if not source.path.endswith("/0"):
        GO_ON.wait()
    return RankResult(source, None, None)


def test_whoever_stops_asking_ends_the_tasks(one_worker: Any) -> None:
    scheduler = one_worker.scheduler

    def known() -> set[str]:
        return {str(key) for key in scheduler.tasks if str(key).startswith(TASK)}

    with connected(parse_engine(engine_of(one_worker)), 1) as cluster:
        asked = cluster.results(first_only, sources(5), failed)
        next(asked)
        assert TASK in scheduler.task_prefixes  # what the dashboard calls them
        assert len(known()) >= 4
        asked.close()  # as Ctrl-C does
        while known():
            time.sleep(0.01)
    GO_ON.set()


def test_another_version_on_a_worker_is_one_line(one_worker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapping_cluster, "__version__", "9.9")
    with pytest.raises(UsageError, match=r"^dask://\S+: ddprof is 9\.9 here, the scheduler has 0\S+, and 1 more"):
        results(one_worker, read_facts, 1)
    monkeypatch.undo()
    with pytest.raises(mapping_cluster._Unreached, match=r"has ddprof \S+, this is 9\.9"):
        mapping_cluster._there(read_facts, "9.9", sources(1)[0])


def test_a_rank_that_fails_or_that_no_worker_sees_is_a_note(traces: Path, tmp_path: Path, one_worker: Any) -> None:
    (tmp_path / "rank0.json.gz").write_bytes(next(traces.iterdir()).read_bytes())
    found = discover([tmp_path]).sources
    (tmp_path / "rank0.json.gz").unlink()
    with connected(parse_engine(engine_of(one_worker)), 1) as cluster:
        ((_, result),) = cluster.results(read_facts, found, failed)
    assert "a Dask worker was to read it: name a shared folder or a URL" in (result.error or "")
    for file in sorted(traces.iterdir())[:2]:
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "empty.json").write_text('{"schemaVersion": 1, "note": {"ph": "X"}}')
    there, here = (analyze([tmp_path], Options(cache=False, engine=e))[0] for e in (engine_of(one_worker), "local"))
    assert to_contract(there) == to_contract(here) and len(there.run.ranks) == 2
    assert "this rank is missing" in [note.effect for note in there.health]


def test_a_cluster_that_is_none_or_not_ours_is_one_line(traces: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with dask.config.set({"distributed.comm.timeouts.connect": "100ms"}), pytest.raises(UsageError) as error:
        analyze([traces], Options(engine="dask://127.0.0.1:9"))
    assert str(error.value).startswith("dask://127.0.0.1:9: no Dask scheduler answers there (")
    monkeypatch.setattr(mapping_cluster, "FIRST_WORKER_S", 0.1)
    with within(0) as empty, pytest.raises(DdprofError, match="the cluster has no worker"):
        analyze([traces], Options(engine=engine_of(empty)))
    with pytest.raises(UsageError, match="its workers and their memory are the cluster's own"):
        analyze([traces], Options(engine="dask://127.0.0.1:9", workers=2))
    with pytest.raises(NoUsableInput, match="no such file, folder or bucket"):
        analyze(["memory://nothing/here"], Options(engine="dask://127.0.0.1:9"))
