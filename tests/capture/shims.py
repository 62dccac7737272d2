"""A shim as `ddprof run` writes it."""

from __future__ import annotations

from pathlib import Path

from ddprof.capture.files.config import CaptureConfig
from ddprof.capture.launcher.shim import package_dir, write_shim


def shim_in(tmp_path: Path) -> Path:
    return write_shim(CaptureConfig(run_dir=str(tmp_path), package_dir=str(package_dir()), version="test"))
