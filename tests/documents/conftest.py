"""The scratch folder of the documented command lines: one recorded run serves them all."""

from collections.abc import Iterator

import pytest
from recorded import record
from scratch import Scratch, made
from snippets import PROJECT
from stores import variables


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
