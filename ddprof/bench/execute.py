"""One training run of the matrix: start it under `ddprof run`, keep its output, read what it measured of itself."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from ddprof.api import analyze
from ddprof.bench.pairs import Job
from ddprof.errors import DdprofError, NoUsableInput
from ddprof.report.model import Report
from ddprof.workloads.stopwatch import MARK

SKIP_STEPS, WINDOW_STEPS, ALL_STEPS = 6, 12, 36
MARGIN_STEPS = 2  # after the window: the trace is written between two steps
PERIOD_STEPS = 4  # every fault repeats within so many steps
TIMEOUT_S = 300.0
OUTPUT = "output.txt"


@dataclass(frozen=True)
class Outcome:
    """A finished run.

    `step_ms`: of the steps outside the trace window, by the workload's own clock; None where it failed, and `problem`
    says why.
    """

    job: Job
    folder: Path
    step_ms: float | None = None
    report: Report | None = None
    problem: str = ""


def run_job(job: Job, folder: Path, reuse: bool = False) -> Outcome:
    """Run the job into `folder` (with `reuse`: only where it has not been run yet) and analyze it."""
    if not (reuse and (folder / OUTPUT).is_file()):
        problem = _execute(job, folder)
        if problem:
            return Outcome(job, folder, problem=problem)
    step_ms = read_step_ms((folder / OUTPUT).read_text(encoding="utf-8", errors="replace"))
    if step_ms is None:
        return Outcome(job, folder, problem="the workload printed no step times")
    try:
        report = analyze(folder, cache=False, workers=1).report
    except DdprofError as error:
        return Outcome(job, folder, step_ms, problem=str(error))
    return Outcome(job, folder, step_ms, report)


def command(job: Job, folder: Path) -> list[str]:
    """`ddprof run ... -- torchrun ... workload.py ...`."""
    script = resources.files("ddprof.workloads").joinpath(job.workload.script)
    if not isinstance(script, Path):
        raise NoUsableInput("the workloads are packed in an archive; unpack the installation to run them")
    watched = ["--run-dir", str(folder), "--skip", str(SKIP_STEPS), "--steps", str(WINDOW_STEPS)]
    rate = job.link_rate
    link = [sys.executable, "-m", "ddprof.workloads.slow_link", "--rate", rate, "--"] if rate else []
    torchrun = [*link, sys.executable, "-m", "torch.distributed.run", "--standalone"]
    torchrun += [f"--nproc-per-node={job.workload.world_size}", str(script), "--steps", str(ALL_STEPS)]
    wanted = ["--fault", job.fault, *(["--fix", job.fix] if job.fix else [])]
    return [sys.executable, "-m", "ddprof.cli.main", "run", *watched, "--", *torchrun, *wanted]


def _execute(job: Job, folder: Path) -> str:
    """Run it; the reason where it failed, else "". The output is kept, complete, in the run folder."""
    shutil.rmtree(folder, ignore_errors=True)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            command(job, folder), env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"still running after {TIMEOUT_S:.0f} s"
    if done.returncode:
        lines = [line for line in (done.stderr + done.stdout).splitlines() if "Error" in line]
        return f"exit code {done.returncode}: {lines[0].strip() if lines else 'no error line'}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / OUTPUT).write_text(done.stdout + done.stderr, encoding="utf-8")
    return ""


def read_step_ms(output: str) -> float | None:
    """The typical step outside the trace window from the workload's line; None where there is none."""
    for line in output.splitlines():
        if line.startswith(f'{{"{MARK}"'):
            told: dict[str, Any] = json.loads(line)
            return typical_ms(told["step_ms"][SKIP_STEPS + WINDOW_STEPS + MARGIN_STEPS :])
    return None


def typical_ms(laps_ms: list[float]) -> float | None:
    """Median over groups of `PERIOD_STEPS` steps of their mean: a fault of every other step counts for what it is, a
    hiccup of the machine does not. None below one group.
    """
    count = len(laps_ms) // PERIOD_STEPS
    if not count:
        return None
    return float(np.median(np.reshape(laps_ms[: count * PERIOD_STEPS], (count, PERIOD_STEPS)).mean(axis=1)))
