"""Reports of Nsight Systems (.nsys-rep), a closed format: an installed `nsys` converts them to a database."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from ddprof.errors import NoUsableInput
from ddprof.untrusted.plain_text import clean

MAGIC = b"NVIDIA Tegra Profiler Report"
_LONGEST_S = 600  # a report of some GB takes minutes


def export(report: str, label: str, into: Path) -> None:
    """Convert a report to the database `into`. Raises NoUsableInput, in one line, where `nsys` cannot."""
    program = shutil.which("nsys")
    if program is None:
        raise NoUsableInput(f"{label}: nsys is no longer on PATH")
    # An absolute path is never taken for an option.
    options = ["--type", "sqlite", "--force-overwrite", "true", "--output", str(into), os.path.abspath(report)]
    try:
        done = subprocess.run(
            [program, "export", *options],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_LONGEST_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoUsableInput(f"{label}: nsys export: {clean(str(error))}") from error
    if done.returncode or not into.is_file():
        lines = (done.stderr or done.stdout).decode("utf-8", "replace").strip().splitlines()
        reason = clean(lines[-1])[:200] if lines else f"exit code {done.returncode}"
        raise NoUsableInput(f"{label}: nsys cannot export it ({reason})")
