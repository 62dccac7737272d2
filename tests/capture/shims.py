"""The environment of a job as `ddprof run` makes it."""

from collections.abc import Mapping
from pathlib import Path

from ddprof.capture.files.config import CaptureConfig
from ddprof.capture.launcher.shim import child_environment


def captured_environment(run_dir: Path, base: Mapping[str, str]) -> dict[str, str]:
    """`base`, and what makes a Python below it be captured into `run_dir`."""
    return child_environment(CaptureConfig(run_dir=str(run_dir)), base)
