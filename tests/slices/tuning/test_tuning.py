"""`ddprof tune` as it is called: what it refuses before anything is run. On the workloads, on a quiet machine,
DDPROF_ROUNDS times: a fault is removed; a healthy job stays."""

import json
import os
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from rich.console import Console

from ddprof.errors import DdprofError
from ddprof.slices.tuning import tune_command as tune
from ddprof.slices.tuning.tune_command import TuneView
from ddprof.trials.document import SCHEMA, Trial, TuneOptions, TuneState
from ddprof.workloads.catalogue import WORKLOADS
from ddprof.workloads.slow_link import obstacle

ROOT = Path(__file__).resolve().parents[3]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"]
ROUNDS = int(os.environ.get("DDPROF_ROUNDS", "1"))
LONGEST_S = 3600.0
NO_SENSE = [
    ([], "want either `-- COMMAND...` or --resume RUN"),
    (["--budget", "soon", "--", "true"], "wants a time like 90s, 10m or 2h"),
    (["--budget", "0m", "--", "true"], "wants a time like 90s, 10m or 2h"),
    (["--only", "colour", "--", "true"], "--only colour: no such setting"),
    (["--", "true"], "no terminal to confirm; --yes runs the command"),
]
# workload, fault, the setting that removes it, the rate of its link where the machine's own would hide the fault
FAULTS = [
    *(("mnist_ddp", fault, "num_workers", "") for fault in ("slow-loader", "few-workers")),
    *(("mnist_ddp", "tiny-buckets", "bucket_cap_mb", ""), ("mnist_ddp", "new-workers", "persistent_workers", "")),
    ("resnet50_ddp", "few-workers", "num_workers", ""),
    ("gpt_fsdp2", "resharding", "reshard_after_forward", "1gbit"),
    ("bert_accelerate", "slow-loader", "num_workers", ""),
    ("deepspeed_zero", "tiny-buckets", "reduce_bucket_size", ""),
]


def _tuned(tmp_path: Path, workload: str, *arguments: str, rate: str = "") -> tuple[dict[str, Any], Path]:
    for package in ("torch", *WORKLOADS[workload].packages):
        pytest.importorskip(package)
    if rate and (why := obstacle(rate)):
        pytest.skip(f"the link cannot be shaped here: {why}")
    link = [sys.executable, "-m", "ddprof.workloads.slow_link", "--rate", rate, "--"] if rate else []
    patch = tmp_path / "fix.patch"
    options = ["--yes", "--no-record", "--out", str(tmp_path / "out"), "--write-patch", str(patch)]
    job = [*link, *TORCHRUN, f"workloads/{workload}.py", "--steps", "300", *arguments]
    line = [sys.executable, "-m", "ddprof.cli.main", "tune", *options, "--", *job]
    how: dict[str, Any] = {"capture_output": True, "text": True, "timeout": LONGEST_S, "check": False}
    done = subprocess.run(line, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, **how)
    assert done.returncode == 0, done.stderr
    (path,) = (tmp_path / "out").glob("*/tune.json")
    return json.loads(path.read_text())["result"], patch


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize("number", range(ROUNDS))
@pytest.mark.parametrize(("workload", "fault", "setting", "rate"), FAULTS, ids=lambda part: str(part))
def test_the_fix_is_kept(tmp_path: Path, workload: str, fault: str, setting: str, rate: str, number: int) -> None:
    """With a gain that is certain, and without another change of what is trained."""
    found, patch = _tuned(tmp_path, workload, "--fault", fault, rate=rate)
    assert found["verdict"] == "keep" and any(setting in each["values"] for each in found["chosen"]), found
    assert found["measured"]["low"] > 0
    assert all(row["results"]["kind"] == "same" for row in found["tried"] if row["state"] == "kept")
    if setting == "num_workers":
        subprocess.run(["git", "apply", "--check", str(patch)], cwd=ROOT, check=True)


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize("number", range(ROUNDS))
@pytest.mark.parametrize("workload", sorted({workload for workload, *_ in FAULTS}))
def test_a_healthy_job_is_let_be(tmp_path: Path, workload: str, number: int) -> None:
    found, patch = _tuned(tmp_path, workload)
    assert found["verdict"] == "nothing to change" and not found["chosen"] and not patch.exists()


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
