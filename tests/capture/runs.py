"""Runs real jobs under `ddprof run` and reads back what it left."""

import gzip
import json
import os
import subprocess
import sys
import sysconfig
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ddprof.capture.files.config import CaptureConfig
from ddprof.capture.launcher.shim import child_environment

# Debian's Python has a sitecustomize beside its library, which it finds before one in site-packages or of the script.
OF_PYTHON = (Path(sysconfig.get_path("stdlib")) / "sitecustomize.py").exists()
without_own = pytest.mark.skipif(OF_PYTHON, reason="this Python has a sitecustomize of its own")

SCRIPTS = Path(__file__).resolve().parent / "scripts"
REPO = Path(__file__).resolve().parents[2]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"]
TWO_RANKS = [sys.executable, str(SCRIPTS / "two_ranks.py")]  # in place of torchrun where that is not what is tested
LEFT_BEHIND = "did not end after their peers"  # as forked_ranks.py says it
TIMEOUT_S = 600  # a loaded machine needs minutes to import DeepSpeed
PHASES = ("data", "forward", "backward", "optimizer")
# What torch says as it aborts now and then at the end of a job, its work done: a thread of its own was not joined.
TORCH_DIED_AT_EXIT = "terminate called without an active exception"


@dataclass(frozen=True)
class Captured:
    code: int
    output: str
    folder: Path

    @property
    def manifest(self) -> dict[str, Any]:
        return read_json(self.folder / "manifest.json")

    @property
    def sidecars(self) -> list[dict[str, Any]]:
        found = [read_json(path) for path in self.folder.glob("*.sidecar.json")]
        return sorted(found, key=lambda sidecar: (sidecar["rank"], sidecar["restart"]))

    @property
    def traces(self) -> dict[int, dict[str, Any]]:
        """Trace by rank (the last window), each a whole JSON document."""
        paths = sorted(self.folder.glob("*.pt.trace.json*"))
        return {int(path.name[4:].split(".")[0]): read_json(path) for path in paths}

    def names(self, rank: int) -> Counter[str]:
        """Counts of each name in the rank's trace."""
        return Counter(event.get("name", "") for event in self.traces[rank]["traceEvents"])

    def phases(self, rank: int) -> list[int]:
        """Counts of each of PHASES in the rank's trace."""
        names = self.names(rank)
        return [names[f"ddprof::{phase}"] for phase in PHASES]


def environment(**extra: str) -> dict[str, str]:
    """The environment of a user who has ddprof installed: without the checkout on PYTHONPATH."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DDPROF_")}
    return {**kept, "OMP_NUM_THREADS": "1", **extra}


def captured_environment(run_dir: Path, base: Mapping[str, str]) -> dict[str, str]:
    """`base`, and what makes a Python below it be captured into `run_dir`, as `ddprof run` makes it."""
    return child_environment(CaptureConfig(run_dir=str(run_dir)), base)


def cli(*words: str) -> list[str]:
    """`ddprof run` with these words, from the checkout."""
    return [sys.executable, "-m", "ddprof.cli.run", *words]


def ddprof_run(out: Path, command: list[str], *options: str, **extra: str) -> Captured:
    """`ddprof run --out OUT OPTIONS -- COMMAND`, from the checkout."""
    done = _done(cli("--out", str(out), "--name", "t", *options, "--", *command), extra)
    latest = out / "latest"
    return Captured(done.returncode, done.stdout + done.stderr, latest.resolve() if latest.exists() else out)


def good_run(out: Path, command: list[str], *options: str, **extra: str) -> Captured:
    """`ddprof_run` of a job that has to end well."""
    run = ddprof_run(out, command, *options, **extra)
    assert run.code == 0, run.output
    return run


def bare_run(command: list[str], **extra: str) -> subprocess.CompletedProcess[str]:
    """A command without ddprof."""
    return _done(command, extra)


def started(command: list[str], **extra: str) -> subprocess.Popen[str]:
    """A command that runs, its stderr among its output."""
    return subprocess.Popen(
        command, cwd=REPO, env=environment(**extra), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def wait_until(condition: Callable[[], object]) -> None:
    """Return once it holds."""
    until = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < until, "it never came"
        time.sleep(0.05)


def script(name: str, *arguments: str) -> list[str]:
    """A two-rank torchrun of one of the scripts beside this file."""
    return [*TORCHRUN, str(SCRIPTS / name), *arguments]


def forked(name: str, *arguments: str, ranks: int = 2) -> list[str]:
    """Ranks of a script (by default beside this file) that share one import of torch: the least seconds for a job."""
    return [sys.executable, str(SCRIPTS / "forked_ranks.py"), str(ranks), str(SCRIPTS / name), *arguments]


def _done(command: list[str], extra: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """The ended job; one in which torch stood still or died at its end is repeated once, saying so."""
    for _ in range(2):
        done = subprocess.run(
            command, cwd=REPO, env=environment(**extra), capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        died = done.returncode != 0 and TORCH_DIED_AT_EXIT in done.stderr
        if LEFT_BEHIND not in done.stderr and not died:
            break
        warnings.warn(f"{command[-1]}: torch {'died' if died else 'stood still'} at the end of the job", stacklevel=3)
    return done


def read_json(path: Path) -> dict[str, Any]:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as stream:
        content: dict[str, Any] = json.load(stream)
    return content
