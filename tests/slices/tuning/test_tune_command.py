"""`ddprof tune` as it is called: what it refuses before anything is run."""

import os
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from ddprof.errors import DdprofError
from ddprof.slices.tuning import tune_command as tune
from ddprof.trials.model import SCHEMA, TuneOptions, TuneState


def _refusal(*arguments: str) -> str:
    done = CliRunner().invoke(tune.command, list(arguments))
    assert done.exit_code != 0
    return str(done.exception) if isinstance(done.exception, DdprofError) else done.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "want either `-- COMMAND...` or --resume RUN"),
        (["--budget", "soon", "--", "true"], "wants a time like 90s, 10m or 2h"),
        (["--budget", "0m", "--", "true"], "wants a time like 90s, 10m or 2h"),
        (["--only", "colour", "--", "true"], "--only colour: no such setting"),
        (["--", "true"], "nobody is there to be asked; --yes runs the command"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: list[str], words: str, tmp_path: Path) -> None:
    assert words in _refusal("--out", str(tmp_path), *arguments) and not list(tmp_path.iterdir())


def test_a_folder_of_another_place_or_another_user_is_not_resumed(tmp_path: Path, monkeypatch: object) -> None:
    options = TuneOptions(("true",), 60.0, 40)
    state = TuneState(options=options, cwd="/elsewhere", started_utc="2026-11-23T12:00:00Z", schema=SCHEMA)
    (tmp_path / "tune.json").write_bytes(msgspec.json.encode(state))
    assert "started in /elsewhere: go there first" in _refusal("--yes", "--resume", str(tmp_path))
    monkeypatch.setattr(os, "getuid", lambda: os.stat(tmp_path).st_uid + 1)  # type: ignore[attr-defined]
    if os.stat(tmp_path).st_uid:
        assert "another user's" in _refusal("--yes", "--resume", str(tmp_path))


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90.0), ("10m", 600.0), ("1.5h", 5400.0)])
def test_times_are_seconds(text: str, seconds: float) -> None:
    assert tune._seconds(None, None, text) == seconds  # type: ignore[arg-type]
