"""Names of trackers in options, and errors where one cannot be written to."""

import subprocess
import sys
from importlib.util import find_spec

import pytest

from ddprof.errors import UsageError
from ddprof.slices.trackers import target
from ddprof.slices.trackers.target import TRACKERS, Target, parse_targets


def test_names_and_places_and_what_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "find_spec", lambda name: find_spec("ddprof"))
    wanted = [Target("wandb"), Target("mlflow", "vision"), Target("tensorboard", "/a:b")]
    assert parse_targets("--to", ["wandb", "mlflow:vision", "tensorboard:/a:b"]) == wanted
    for given, says in ((["wndb"], "wandb"), (["comet", "comet:x"], "twice")):
        with pytest.raises(UsageError, match=says):
            parse_targets("--to", given)


def test_no_tracker_is_imported_before_one_is_written_to() -> None:
    libraries = {package for package, _ in TRACKERS.values()}
    modules = "ddprof, ddprof.api, ddprof.cli.main, ddprof.cli.run, ddprof.cli.report, ddprof.slices.trackers.follow"
    lines = f"import sys, {modules}; print(sorted({libraries!r} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
