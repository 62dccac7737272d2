"""`ddprof tune` as it is called: what it refuses before anything is run."""

import os
from io import StringIO
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from rich.console import Console

from ddprof.errors import DdprofError
from ddprof.slices.tuning import tune_command as tune
from ddprof.slices.tuning.tune_command import TuneView
from ddprof.trials.model import SCHEMA, Trial, TuneOptions, TuneState

NO_SENSE = [
    ([], "want either `-- COMMAND...` or --resume RUN"),
    (["--budget", "soon", "--", "true"], "wants a time like 90s, 10m or 2h"),
    (["--budget", "0m", "--", "true"], "wants a time like 90s, 10m or 2h"),
    (["--only", "colour", "--", "true"], "--only colour: no such setting"),
    (["--", "true"], "no terminal to confirm; --yes runs the command"),
]


def _refusal(*arguments: str) -> str:
    done = CliRunner().invoke(tune.command, list(arguments))
    assert done.exit_code != 0
    return str(done.exception) if isinstance(done.exception, DdprofError) else done.output


@pytest.mark.parametrize(("arguments", "words"), NO_SENSE)
def test_what_makes_no_sense_is_refused(arguments: list[str], words: str, tmp_path: Path) -> None:
    assert words in _refusal("--out", str(tmp_path), *arguments) and not list(tmp_path.iterdir())


def test_a_folder_of_another_place_or_another_user_is_not_resumed(tmp_path: Path, monkeypatch: object) -> None:
    state = TuneState(options=TuneOptions(("true",), 60.0, 40), cwd="/elsewhere", started_utc="", schema=SCHEMA)
    (tmp_path / "tune.json").write_bytes(msgspec.json.encode(state))
    assert "started in /elsewhere: run it from there" in _refusal("--yes", "--resume", str(tmp_path))
    monkeypatch.setattr(os, "getuid", lambda: os.stat(tmp_path).st_uid + 1)  # type: ignore[attr-defined]
    if os.stat(tmp_path).st_uid:
        assert "another user's" in _refusal("--yes", "--resume", str(tmp_path))


@pytest.mark.parametrize("option", [("--allow-numerics",), ("--only", "num_workers"), ("--steps", "20")])
def test_an_option_that_a_tuning_was_not_started_with_is_not_passed_over(option, tmp_path: Path) -> None:
    state = TuneState(options=TuneOptions(("true",), 60.0, 40), cwd=str(Path.cwd()), started_utc="", schema=SCHEMA)
    (tmp_path / "tune.json").write_bytes(msgspec.json.encode(state))
    assert f"its {option[0]} differs" in _refusal("--resume", str(tmp_path), *option)
    assert "no terminal to confirm" in _refusal("--resume", str(tmp_path), "--steps", "40")


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90.0), ("10m", 600.0), ("1.5h", 5400.0)])
def test_times_are_seconds(text: str, seconds: float) -> None:
    assert tune._seconds(None, None, text) == seconds  # type: ignore[arg-type]


def _played(is_terminal: bool) -> str:
    printed = StringIO()
    view = TuneView(Console(file=printed, force_terminal=is_terminal, width=120, color_system=None))
    with view.shown():
        for label, step_us in (("diagnosis", 90_000.0), ("baseline", 100_000.0), ("num_workers=4", 50_000.0)):
            view.began(label, 0, 300.0)
            view.tick()
            view.ended(Trial(label, (), "000", 12.0, 50, step_us), is_new=label != "baseline")
        view.ended(Trial("num_workers=8", (), "000", 3.0, failed="out of\x1b memory"), is_new=True)
        view.began("num_workers=4", 4, 250.0)
    return printed.getvalue()


def test_each_run_has_a_line_and_who_watches_sees_what_runs() -> None:
    assert _played(is_terminal=False).splitlines() == [
        "ddprof: diagnosis: traced, 50 steps (12 s)",
        "ddprof: baseline: 100 ms per step (made before)",
        "ddprof: num_workers=4: 50 ms per step (12 s)",
        "ddprof: num_workers=8: out of? memory (3 s)",
    ]
    seen = _played(is_terminal=True)
    assert "run 4  num_workers=4  0 s; 250 s of the budget left" in seen
    assert "best run so far 50 ms (num_workers=4), as it is 100 ms" in seen and "ddprof: baseline: 100 ms" in seen
