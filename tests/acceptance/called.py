"""Commands as a person gives them, for the acceptance tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TIMEOUT_S = 900  # beside other work a machine takes minutes to import a framework


def torchrun(ranks: int, script: str, *arguments: str) -> list[str]:
    """The command of so many ranks of a script below this folder."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    return [*launch, str(HERE / script), *arguments]


def captured(out: Path, command: list[str], *options: str) -> Path:
    """The folder of a run of the command under `ddprof run`."""
    call([sys.executable, "-m", "ddprof.cli.run", "--out", str(out), "--name", "run", *options, "--", *command])
    return out / "latest"


def told(command: str, run: Path, *options: str) -> dict[str, Any]:
    """JSON that `ddprof COMMAND RUN` prints."""
    said: dict[str, Any] = json.loads(call([sys.executable, "-m", "ddprof.cli.main", command, str(run), *options]))
    return said


def call(command: list[str]) -> str:
    """Output of a command, which must end without an error."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DDPROF_")}
    environment = {**kept, "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"}
    done = subprocess.run(
        command, cwd=HERE.parents[1], env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout
