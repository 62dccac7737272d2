"""A Dask scheduler and workers on this machine, each a process of its own that ends with the test."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from distributed import Client

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
