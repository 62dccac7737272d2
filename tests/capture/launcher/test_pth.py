"""Isolated interpreters are reached by the .pth file."""

import venv
from pathlib import Path

from runs import bare_run, captured_environment

from ddprof.capture.launcher import pth
from ddprof.capture.launcher.shim import ENV_SHIM


def test_isolated_interpreters_are_reached_by_the_pth(tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", symlinks=True)
    (site_packages,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    pth.install(site_packages)
    (site_packages / "sitecustomize.py").write_text("import sys; sys.own = sys.__dict__.get('own', 0) + 1\n")
    python = str(tmp_path / "venv" / "bin" / "python")
    settings = captured_environment(tmp_path / "run", {})[ENV_SHIM]
    code = "import sys; print(getattr(sys, '_ddprof_capture', None), sys.own)"

    def ask(option: str = "-I", **extra: str) -> str:
        done = bare_run([python, option, "-c", code], **extra)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.strip()

    found = f"{settings.partition('/settings/')[2]} 1"  # and the user's own sitecustomize has run once
    assert ask(**{ENV_SHIM: settings}) == found and ask("-E", **{ENV_SHIM: settings}) == found
    assert ask("-u", **captured_environment(tmp_path / "run", {})) == found  # both ways in
    assert ask() == "None 1" and ask(**{ENV_SHIM: str(tmp_path / "gone/shim/settings/x")}) == "None 1"
    pth.remove(site_packages)
    assert ask(**{ENV_SHIM: settings}) == "None 1"
