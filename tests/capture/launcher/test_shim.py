"""The start-up shim: what it adds to an interpreter and an environment, and what it leaves alone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from runs import environment
from shims import shim_in

from ddprof.capture.files.config import CaptureConfig
from ddprof.capture.launcher.shim import ENV_SHIM, child_environment, package_dir, write_shim


def test_a_run_folder_that_pythonpath_cannot_name(tmp_path: Path) -> None:
    shim = write_shim(CaptureConfig(run_dir=str(tmp_path / "sample:8"), package_dir="/", version="test"))
    try:
        assert ":" not in str(shim)
        assert CaptureConfig.load(shim / "config.json").run_dir == str(tmp_path / "sample:8")
    finally:
        shutil.rmtree(shim)


def test_a_sitecustomize_of_the_user_still_runs(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import sys; sys.own_sitecustomize = True\n")
    base = environment(PYTHONPATH=str(own))
    code = "import sys; print(sys.own_sitecustomize, sys._ddprof_capture)"
    shim = shim_in(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", code], env=child_environment(shim, base), capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["True", str(shim)]
    assert done.stderr == ""


def test_broken_settings_do_not_stop_python(tmp_path: Path) -> None:
    shim = shim_in(tmp_path)
    (shim / "config.json").write_text("{broken")
    done = subprocess.run(
        [sys.executable, "-c", "print('runs')"],
        env=child_environment(shim, environment()),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "runs\n"
    assert done.stderr.startswith("ddprof: no capture in this process: JSONDecodeError")


def test_nothing_of_ours_is_importable_in_the_users_environment(tmp_path: Path) -> None:
    """A Python without ddprof's dependencies sees capture and nothing else of ours."""
    venv.create(tmp_path / "venv", symlinks=True)
    python = str(tmp_path / "venv" / "bin" / "python")
    code = (
        "import importlib.util as u, ddprof.capture.session as s, sys\n"
        "print(s.__file__, u.find_spec('click'), u.find_spec('pandas'), 'numpy' in sys.modules)"
    )
    done = subprocess.run(
        [python, "-c", code],
        env=child_environment(shim_in(tmp_path), environment()),
        capture_output=True,
        text=True,
        check=True,
    )
    where, *others = done.stdout.split()
    assert where.startswith(str(package_dir()))
    assert others == ["None", "None", "False"]


def test_environment_of_the_job_gains_two_variables_only(tmp_path: Path) -> None:
    before = dict(os.environ)
    after = child_environment(tmp_path, before)
    assert {name for name in after if after.get(name) != before.get(name)} == {"PYTHONPATH", ENV_SHIM}
