"""How options name trackers, and what is said where one cannot be written to."""

import subprocess
import sys
from importlib.util import find_spec

import pytest

from ddprof.errors import UsageError
from ddprof.slices.trackers import target
from ddprof.slices.trackers.target import TRACKERS, Target, parse_targets

LIBRARIES = {package for package, _ in TRACKERS.values()}


@pytest.fixture
def all_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "find_spec", lambda name: find_spec("ddprof"))


@pytest.mark.usefixtures("all_installed")
def test_names_and_places() -> None:
    assert parse_targets("--to", ["wandb", "mlflow:vision", "tensorboard:/a:b"]) == [
        Target("wandb"),
        Target("mlflow", "vision"),
        Target("tensorboard", "/a:b"),
    ]


@pytest.mark.usefixtures("all_installed")
@pytest.mark.parametrize(("given", "says"), [(["wndb"], "wandb"), (["comet", "comet:x"], "twice")])
def test_what_is_refused(given: list[str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        parse_targets("--to", given)


def test_no_tracker_is_imported_before_one_is_written_to() -> None:
    modules = "ddprof, ddprof.api, ddprof.cli.main, ddprof.cli.run, ddprof.cli.report, ddprof.slices.trackers.follow"
    lines = f"import sys, {modules}; print(sorted({LIBRARIES!r} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
