"""Additions to a job's environment, and options of its command that prevent capture."""

import os
import shlex
from pathlib import Path

import pytest
from runs import captured_environment

from ddprof.capture.launcher import shim
from ddprof.capture.launcher.shim import ENV_SHIM, SHIM, obstacle


def test_a_jobs_environment_gains_two_variables_and_its_code_lies_where_ddprof_is_installed(tmp_path: Path) -> None:
    before = {"HOME": "/h", "PYTHONPATH": "/mine"}
    after = captured_environment(tmp_path, before)
    assert {name for name in after if after.get(name) != before.get(name)} == {"PYTHONPATH", ENV_SHIM}
    first, settings, own = after["PYTHONPATH"].split(os.pathsep)
    assert (first, own) == (str(SHIM), "/mine") and not Path(settings).exists()
    assert Path(shim.__file__).parents[1] / "shim" == SHIM
    assert sorted(path.name for path in SHIM.iterdir() if path.suffix == ".py") == ["__init__.py", "sitecustomize.py"]
    captured_environment(tmp_path / "run", {})
    assert list(tmp_path.iterdir()) == []


def test_a_package_that_pythonpath_cannot_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shim, "SHIM", tmp_path / "sample:8")
    with pytest.raises(ValueError, match=r"PYTHONPATH cannot name .*sample:8"):
        captured_environment(tmp_path, {})


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("python -I train.py", "python -I ignores PYTHONPATH"),
        ("/usr/bin/python3.11 -u -E -m train", "python -E ignores PYTHONPATH"),
        ("env A=1 python3 -X dev -W ignore -Im train", "python -I ignores PYTHONPATH"),
        ("bash -c 'cd job && python -S train.py'", "python -S leaves out sitecustomize"),
        *((line, None) for line in ("python train.py -I -E -S", "python -c 'import sys' -I", "mypython -I")),
        ("python -X importtime -Wignore -u train.py", None),
    ],
)
def test_options_that_keep_capture_out(line: str, said: str | None) -> None:
    found = obstacle(shlex.split(line))
    assert found is None if said is None else found is not None and found.startswith(said)
