"""Additions of the start-up shim to an interpreter, and things that it leaves alone."""

import subprocess
import sys
import venv
from collections.abc import Mapping
from pathlib import Path

import pytest
from runs import OF_PYTHON, captured_environment, environment, without_own

from ddprof.capture.launcher.shim import ENV_SHIM, SHIM

REACHED = "torch 1.0 is older than"


def ran(base: Mapping[str, str], *command: str) -> tuple[str, str]:
    """Standard output and error of a command."""
    done = subprocess.run(command, cwd="/", env=dict(base), capture_output=True, text=True, check=True)
    return done.stdout, done.stderr


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A folder with a script `train.py` to be, and a torch that capture refuses."""
    (tmp_path / "torch.py").write_text("__version__ = '1.0'\n")  # which capture says: proof that it was reached
    return tmp_path


@pytest.mark.parametrize(
    "name",
    ["ddprof", "analyzers", "workloads", "dashboard", "capture", pytest.param("sitecustomize", marks=without_own)],
)
@pytest.mark.parametrize("first", [True, False], ids=["before torch", "after torch"])
def test_a_module_of_the_user_is_the_users_and_capture_works(job: Path, name: str, first: bool) -> None:
    (job / f"{name}.py").write_text("whose = 'the user'\n")
    order = f"import {name}; import torch" if first else f"import torch; import {name}"
    (job / "train.py").write_text(f"{order}; print({name}.whose, {name}.__file__)")
    out, err = ran(captured_environment(job / "run", environment()), sys.executable, str(job / "train.py"))
    assert out.split() == ["the", "user", str(job / f"{name}.py")] and REACHED in err and err.count("\n") == 1


def test_nothing_of_ours_is_importable_in_the_users_environment(job: Path) -> None:
    """A Python without ddprof sees nothing of it, and capture works all the same."""
    venv.create(job / "venv", symlinks=True)
    code = (
        "import importlib.util as u, sys, torch\n"
        "print(*[u.find_spec(name) for name in ('ddprof', 'click', 'pandas', 'analyzers', 'sitecustomize')])\n"
        "print('numpy' in sys.modules, [f for f in sys.meta_path if 'Private' in str(f)])"
    )
    base = captured_environment(job / "run", environment(PYTHONPATH=str(job)))
    out, err = ran(base, str(job / "venv" / "bin" / "python"), "-c", code)
    found, rest = out.splitlines()
    assert found.split()[:4] == ["None"] * 4
    assert OF_PYTHON or str(SHIM) in found  # on PYTHONPATH, for processes yet to be started
    assert rest == "False []" and REACHED in err


def test_a_sitecustomize_of_the_user_runs_and_without_one_there_is_none(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import sys; sys.own_sitecustomize = __file__\n")
    base = captured_environment(tmp_path / "run", environment(PYTHONPATH=str(own)))
    code = "import sys, sitecustomize as s; print(sys.own_sitecustomize, s.__file__)"
    out, err = ran(base, sys.executable, "-c", code)
    assert out.split() == [str(own / "sitecustomize.py")] * 2 and err == ""
    code = (
        "import sys\nprint('sitecustomize' in sys.modules)\n"
        "try: import sitecustomize\nexcept ImportError as error: print(error)"
    )
    out, err = ran(captured_environment(tmp_path, environment()), sys.executable, "-c", code)
    assert OF_PYTHON or out.splitlines() == ["False", "No module named 'sitecustomize'"]
    assert (out, err) == ran(environment(), sys.executable, "-c", code)  # as bare


def test_broken_settings_do_not_stop_python(job: Path) -> None:
    base = captured_environment(job / "run", environment())
    broken = {name: value.replace("skip_steps", "skipped") for name, value in base.items()}
    (job / "train.py").write_text("import torch\nprint('runs')\n")
    out, err = ran(broken, sys.executable, str(job / "train.py"))
    assert out == "runs\n" and err.count("\n") == 1
    assert err.startswith("ddprof: no capture in this process: ValueError: the settings of ddprof run are")


@pytest.mark.parametrize("lost", ["PYTHONPATH", ENV_SHIM])
def test_either_variable_carries_the_settings(tmp_path: Path, lost: str) -> None:
    """Launchers that hand on nothing but PYTHON* are not alone: others replace PYTHONPATH."""
    base = captured_environment(tmp_path / "run", environment())
    base[lost] = str(SHIM) if lost == "PYTHONPATH" else ""
    out, _ = ran(base, sys.executable, "-c", "import sys; print(sys._ddprof_capture)")
    assert out.strip().endswith(f"run_dir={tmp_path / 'run'}")


def test_a_closed_standard_error_costs_nothing(job: Path) -> None:
    """Python ends with 120 where its own buffer cannot be written: nothing of ours may be in it."""
    (job / "train.py").write_text("import torch\n")
    base = captured_environment(job / "run", environment())
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, str(job / "train.py")], env=base, stderr=full, check=False)
    assert done.returncode == 0
    closed = subprocess.run(["sh", "-c", f"exec {sys.executable} {job}/train.py 2>&-"], env=base, check=False)
    assert closed.returncode == 0
