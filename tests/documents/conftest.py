"""The scratch folder of the documented command lines: one recorded run serves them all."""

import shutil
from collections.abc import Iterator

import pytest
from inprocess import call
from scratch import Scratch, made
from snippets import PROJECT, ROOT
from stores import variables

from tests.slices.hangs.hang_dumps import Job
from tests.slices.span_logs import spans
from tests.snapshots import FORWARD, MIB, Allocator, write


@pytest.fixture(scope="session")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Scratch:
    """The folder, with a real run of two ranks in it."""
    for needed in ("torch", "libcst", "plotly", "dash"):
        pytest.importorskip(needed, reason=f"{needed} is not installed")
    folder = made(tmp_path_factory.mktemp("reader"), set(PROJECT["optional-dependencies"]))
    record(folder)
    return folder


@pytest.fixture(scope="session")
def stored(scratch: Scratch, s3_server: str) -> Iterator[Scratch]:
    """The scratch folder beside a store that has the run as `s3://bucket/run` and another."""
    import s3fs

    known = variables(s3_server)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in known.items():
            patch.setenv(name, value)
        store = s3fs.S3FileSystem()
        store.mkdir("bucket")
        for name in ("run", "runs/20260314T120000Z-train"):
            for file in (scratch.folder / "ddprof-runs" / "recorded").iterdir():
                if file.is_file():
                    store.put_file(str(file), f"bucket/{name}/{file.name}")
        s3fs.S3FileSystem.clear_instance_cache()
    yield Scratch(scratch.folder, scratch.environment | known)


@pytest.fixture(scope="session")
def scheduler(stored: Scratch) -> Iterator[str]:
    """HOST:PORT of a Dask cluster on this machine, whose workers may read the store."""
    distributed = pytest.importorskip("distributed")
    may = {name: value for name, value in stored.environment.items() if name.startswith("AWS_")}
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None, env=may) as cluster:
        yield str(cluster.scheduler_address).removeprefix("tcp://")


def record(scratch: Scratch) -> None:
    """One real run of two ranks; what the pages make of it stands beside it under the pages' names."""
    folder = scratch.folder
    job = "ddprof run --run-dir ddprof-runs/recorded -- torchrun --standalone --nproc-per-node=2 train.py"
    (folder / "ddprof-runs").mkdir()
    ended = scratch.run(job, programs="forked")
    assert ended.code == "0", ended.said[-3000:]
    scratch.restore()
    for name in ("run", "run1", "run2", "run3", "run4"):
        (folder / name).symlink_to("ddprof-runs/recorded")
    prepared = "ddprof analyze run -o main.json && ddprof patch run/FIXES.toml -o fix.patch"
    generated = "python benchmarks/oracle/generate.py generated/a --count 1 --seed 2"
    ended = call(f"{prepared} && {generated} && ddprof report run -o x.html", scratch)
    assert ended.code == "0", ended.said[-3000:]
    shutil.copy(folder / "main.json", folder / "report.json")
    hanging = Job(2)
    for rank, operation in enumerate(("all_reduce", "barrier")):
        hanging.call(operation, [rank], state="started")
    hanging.write(folder / "hung")
    allocator = Allocator()
    allocator.free(allocator.alloc(MIB, FORWARD))
    write(folder / "snapshot.pickle", allocator.dump())
    shutil.copy(ROOT / "tests/slices/training_logs/samples/megatron_gpt2.log", folder / "train.log")
    spans.write(folder / "outputs" / "structured_logs", fetch=lambda rank, step: 0.08 * (rank == 1), titan=False)
