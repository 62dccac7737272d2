"""Runs real jobs under `ddprof run` and reads back what it left."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).resolve().parent / "scripts"
REPO = Path(__file__).resolve().parents[2]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"]
TWO_RANKS = [sys.executable, str(SCRIPTS / "two_ranks.py")]  # in place of torchrun where that is not what is tested
TIMEOUT_S = 300  # a loaded machine needs two minutes to import DeepSpeed


@dataclass(frozen=True)
class Captured:
    """A finished `ddprof run`."""

    code: int
    output: str
    folder: Path

    @property
    def manifest(self) -> dict[str, Any]:
        """The run's manifest."""
        return _json(self.folder / "manifest.json")

    @property
    def sidecars(self) -> list[dict[str, Any]]:
        """Sidecars in rank order."""
        found = [_json(path) for path in self.folder.glob("*.sidecar.json")]
        return sorted(found, key=lambda sidecar: (sidecar["rank"], sidecar["restart"]))

    @property
    def traces(self) -> dict[int, dict[str, Any]]:
        """Trace by rank (the last window), each a whole JSON document."""
        return {int(path.name[4:].split(".")[0]): _json(path) for path in sorted(self.folder.glob("*.pt.trace.json*"))}

    def load(self, path: Path) -> dict[str, Any]:
        """A JSON file of the run, compressed or not."""
        return _json(path)

    def names(self, rank: int) -> list[str]:
        """Names of the events of a rank's trace."""
        return [event.get("name", "") for event in self.traces[rank]["traceEvents"]]


def environment(**extra: str) -> dict[str, str]:
    """The environment of a user who has ddprof installed: without the checkout on PYTHONPATH."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DDPROF_")}
    return {**kept, "OMP_NUM_THREADS": "1", **extra}


def ddprof_run(out: Path, command: list[str], *options: str, **extra: str) -> Captured:
    """`ddprof run --out OUT OPTIONS -- COMMAND`, from the checkout."""
    line = [sys.executable, "-m", "ddprof.cli.run", "--out", str(out), "--name", "t", *options, "--", *command]
    done = subprocess.run(
        line, cwd=REPO, env=environment(**extra), capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    latest = out / "latest"
    return Captured(done.returncode, done.stdout + done.stderr, latest.resolve() if latest.exists() else out)


def script(name: str, *arguments: str) -> list[str]:
    """A two-rank torchrun of one of the scripts beside this file."""
    return [*TORCHRUN, str(SCRIPTS / name), *arguments]


def ranks_of(name: str, *arguments: str) -> list[str]:
    """Two ranks of one of the scripts beside this file, started without torchrun and the seconds of its own torch."""
    return [*TWO_RANKS, str(SCRIPTS / name), *arguments]


def _json(path: Path) -> dict[str, Any]:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as stream:
        content: dict[str, Any] = json.load(stream)
    return content
