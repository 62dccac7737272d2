"""Isolated interpreters are reached by the .pth file."""

from __future__ import annotations

import subprocess
import venv
from pathlib import Path

from runs import environment
from shims import shim_in

from ddprof.capture.launcher import pth
from ddprof.capture.launcher.shim import ENV_SHIM


def test_isolated_interpreters_are_reached_by_the_pth(tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", symlinks=True)
    (site_packages,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    pth.install(site_packages)
    python = str(tmp_path / "venv" / "bin" / "python")
    shim = shim_in(tmp_path)
    code = "import sys; print(getattr(sys, '_ddprof_capture', None))"

    def ask(**extra: str) -> str:
        done = subprocess.run(
            [python, "-I", "-c", code], env=environment(**extra), capture_output=True, text=True, check=True
        )
        assert done.stderr == ""
        return done.stdout.strip()

    assert ask(**{ENV_SHIM: str(shim)}) == str(shim)
    assert ask() == "None"
    assert ask(**{ENV_SHIM: str(tmp_path / "gone")}) == "None"
    pth.remove(site_packages)
    assert ask(**{ENV_SHIM: str(shim)}) == "None"
