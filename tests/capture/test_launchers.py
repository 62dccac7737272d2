"""Ways a rank comes to life, and that each is found; and that the job's environment is left alone."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from runs import SCRIPTS, ddprof_run, environment, script

from ddprof.capture import pth
from ddprof.capture.config import CaptureConfig
from ddprof.capture.shim import ENV_SHIM, child_environment, package_dir, write_shim


@pytest.mark.torch
@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_multiprocessing(tmp_path: Path, method: str) -> None:
    run = ddprof_run(tmp_path, [sys.executable, str(SCRIPTS / "spawned.py"), method])
    assert run.code == 0, run.output
    assert run.manifest["ranks"] == [0, 1]
    assert sorted(run.traces) == [0, 1]
    assert [sidecar["steps_total"] for sidecar in run.sidecars] == [12, 12]
    assert [sidecar["state"] for sidecar in run.sidecars] == ["exit", "exit"]


@pytest.mark.torch
def test_through_a_shell_with_clocks_measured(tmp_path: Path) -> None:
    line = shlex.join(script("loop.py"))
    run = ddprof_run(tmp_path, ["bash", "-c", f"cd / && env FOO=1 {line}"], DDPROF_CLOCK="always")
    assert run.code == 0, run.output
    pings = run.sidecars[1]["clock_pings"]
    measured = [ping for ping in pings if ping["method"] == "ping"]
    assert measured
    for ping in measured:  # one kernel, one clock: the true offset is 0
        assert abs(ping["offset_to_rank0_ns"]) <= ping["rtt_ns"] / 2 + 1_000
        assert 0 < ping["rtt_ns"] < 50_000_000


def shim_in(tmp_path: Path) -> Path:
    return write_shim(CaptureConfig(run_dir=str(tmp_path), package_dir=str(package_dir()), version="test"))


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
