"""Runs a script and its twin: bare in turn, then under `ddprof run`; has `ddprof analyze` read the recordings."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.strangers.spec import Spec
from benchmarks.strangers.write import write

NAMES = ("script", "twin")
TIMEOUT_S = 600
TRIES = 3  # of a job that torch aborts at its exit, bare or not: a daemon thread still computes there
SETTLED = 15  # steps before this are start-up, or before the fault begins
ODD = 2  # the slowest and the quickest steps of a run are left out: the slowest alone would be those of a rare fault
_HERE = Path(__file__).resolve().parents[2]


def torchrun(ranks: int) -> list[str]:
    """Its command line, before the name of a script."""
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]


def run(spec: Spec, folder: Path, rounds: int, names: Sequence[str] = NAMES, launcher: Sequence[str] = ()) -> str:
    """Run all of one script; why it could not be, or "". What is there already is kept.

    `names`: of NAMES. `launcher`: in place of torchrun's command.
    """
    folder.mkdir(parents=True, exist_ok=True)
    script = write(spec)
    for name, text in zip(NAMES, (script.text, script.twin), strict=True):
        (folder / f"{name}.py").write_text(text)
    about = {**spec.as_dict(), "lines": script.lines, "functions": script.functions}
    (folder / "spec.json").write_text(json.dumps(about, indent=1))
    launch = [*(launcher or torchrun(spec.ranks))]
    for number in range(rounds):
        for name in names if number % 2 == 0 else names[::-1]:
            said = _timed([*launch, str(folder / f"{name}.py")], folder / "bare" / f"{name}{number}")
            if said:
                return f"bare {name}: {said}"
    for name in names:
        under = [sys.executable, "-m", "ddprof.cli.run", "--out", str(folder / name), "--name", "run", "--", *launch]
        if not (folder / name / "latest").exists():
            said = _timed([*under, str(folder / f"{name}.py")], folder / "traced" / name)
            if said:
                return f"ddprof run {name}: {said}"
    return ""


def analyze(folder: Path, names: Sequence[str] = NAMES) -> str:
    """Write a report of each recording beside them; why one could not be, or ""."""
    for name in names:
        command = [
            sys.executable,
            "-m",
            "ddprof.cli.main",
            "analyze",
            str(folder / name / "latest"),
            "--format",
            "json",
        ]
        with open(folder / f"{name}.json", "w") as out:
            said = _call(command, out.fileno())
        if said:
            return f"analyze {name}: {said}"
    return ""


def step_ms(folder: Path, name: str) -> float:
    """Mean step of a script's bare runs by its own clock, without the extremes.

    Where there were none, of the run under ddprof, whose windows are slower.
    """
    found = []
    bare = sorted((folder / "bare").glob(f"{name}*/times*.json"))
    for written in bare or sorted((folder / "traced" / name).glob("times*.json")):
        steps = np.sort(np.diff(json.loads(written.read_text()))[SETTLED:])
        found.append(float(steps[ODD:-ODD].mean()) * 1e3)
    return float(np.median(found))


def _timed(command: Sequence[str], out: Path) -> str:
    """Run a job whose script writes its times to a folder, unless it has."""
    if (out / "times0.json").exists():
        return ""
    out.mkdir(parents=True, exist_ok=True)
    for _ in range(TRIES):
        with open(out / "said.txt", "w") as said:
            why = _call([*command, str(out)], said.fileno())
        if "SIGABRT" not in why:
            break
    return why


def _call(command: Sequence[str], out: int) -> str:
    """Run a command to its end in a session of its own, so that nothing of it is left; what it said if it failed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DDPROF_")}
    started = subprocess.Popen(
        command,
        cwd=_HERE,
        env={**kept, "OMP_NUM_THREADS": "1"},
        stdout=out,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        _, said = started.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(started.pid, signal.SIGTERM)  # upon which torchrun ends its ranks, each in a session of its own
        with contextlib.suppress(subprocess.TimeoutExpired):
            started.communicate(timeout=TIMEOUT_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
        return f"took more than {TIMEOUT_S} s"
    return "" if started.returncode == 0 else f"exit code {started.returncode}: {said[-1500:]}"
