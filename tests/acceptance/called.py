"""Commands as a person gives them, for the acceptance tests."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
TIMEOUT_S = 900  # beside other work a machine takes minutes to import a framework


def call(command: list[str]) -> str:
    """Output of a command, which must end without an error."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DDPROF_")}
    environment = {**kept, "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"}
    done = subprocess.run(
        command, cwd=HERE.parents[1], env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout
