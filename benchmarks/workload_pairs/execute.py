"""Runs a fault and its fixes side by side: each job is captured once, then they take turns, so that all are measured
under the same conditions. Machines that others share are faster in one minute than in the next.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

from benchmarks.workload_pairs.pairs import Job
from benchmarks.workload_pairs.rendezvous import rendezvous
from benchmarks.workload_pairs.turns import LAPS, Turns, take_turns
from ddprof.analyzers.engine import LoadedRun, Options, load_runs
from ddprof.analyzers.settings.knobs import BY_KEY, parse_setting
from ddprof.analyzers.settings.present import present
from ddprof.errors import DdprofError, NoUsableInput
from ddprof.report.model import Report
from ddprof.workloads.catalogue import AS_SETTING

SKIP_STEPS, WINDOW_STEPS = 6, 24
SETTLE_STEPS = 4  # after the window: its export, and what waited for that
ENDLESS = 1_000_000
MEASURED = "measured.json"


@dataclass(frozen=True)
class FinishedJob:
    """A finished run.

    `step_ms`: of its turns, by the workload's own clock, and the mean of each turn; None where it failed, and `problem`
    says why. `asked_ms`: fix -> predicted step, of fixes that are a setting.
    """

    job: Job
    folder: Path
    step_ms: float | None = None
    report: Report | None = None
    problem: str = ""
    turns_ms: tuple[float, ...] = ()
    asked_ms: Mapping[str, float] = field(default_factory=dict)


def run_jobs(jobs: Sequence[Job], out: Path, reuse: bool = False) -> list[FinishedJob]:
    """Run jobs that are to be compared into folders below `out` (with `reuse`: only where one has not been run yet)
    and analyze them.
    """
    folders = [out / job.name for job in jobs]
    if not (reuse and all((folder / MEASURED).is_file() for folder in folders)):
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        lines = [command(job, folder) for job, folder in zip(jobs, folders, strict=True)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        first = SKIP_STEPS + WINDOW_STEPS + SETTLE_STEPS
        for folder, turns in zip(folders, take_turns(lines, folders, environment, first), strict=True):
            (folder / MEASURED).write_text(json.dumps(turns.as_dict()), encoding="utf-8")
    return [_finished(job, folder) for job, folder in zip(jobs, folders, strict=True)]


def _finished(job: Job, folder: Path) -> FinishedJob:
    turns = Turns(**json.loads((folder / MEASURED).read_text(encoding="utf-8")))
    if turns.step_ms is None:
        return FinishedJob(job, folder, problem=turns.problem)
    measured = tuple(turns.turns_ms)
    try:
        (run,) = load_runs([folder], Options(cache=False, workers=1))
    except DdprofError as error:
        return FinishedJob(job, folder, turns.step_ms, problem=str(error), turns_ms=measured)
    return FinishedJob(job, folder, turns.step_ms, run.report, "", measured, _asked(job, run, turns.step_ms))


def _asked(job: Job, run: LoadedRun, step_ms: float) -> dict[str, float]:
    """Fix -> predicted step (ms), for those fixes of the fault that are a setting: what `ddprof whatif` says of it."""
    fault = job.workload.faults.get(job.fault)
    now_us = run.pricer.unprofiled_us(())
    found = {}
    for fix in fault.fixes if fault is not None and not job.fix else ():
        if fix in AS_SETTING:
            setting = parse_setting(AS_SETTING[fix])
            try:
                changes = BY_KEY[setting.key].changes(setting, run.measures, present(run.measures, {}))
            except DdprofError:  # nothing is known of this run's loader
                continue
            after_us = run.pricer.unprofiled_us(changes)
            if after_us is not None and now_us:
                found[fix] = step_ms * after_us / now_us
    return found


def command(job: Job, folder: Path) -> list[str]:
    """`ddprof run ... -- torchrun ... workload.py ...`."""
    script = resources.files("ddprof.workloads").joinpath(job.workload.script)
    if not isinstance(script, Path):
        raise NoUsableInput("the workloads are packed in an archive; unpack the installation to run them")
    watched = ["--run-dir", str(folder), "--skip", str(SKIP_STEPS), "--steps", str(WINDOW_STEPS)]
    rate = job.link_rate
    link = [sys.executable, "-m", "ddprof.workloads.slow_link", "--rate", rate, "--"] if rate else []
    torchrun = [*link, sys.executable, "-m", "torch.distributed.run", *rendezvous()]
    torchrun += [f"--nproc-per-node={job.workload.world_size}", str(script), "--steps", str(ENDLESS)]
    wanted = ["--fault", job.fault, *(["--fix", job.fix] if job.fix else []), "--laps", str(folder / LAPS)]
    if job.fault in job.workload.faults:
        wanted += ["--fault-ms", f"{job.workload.fault_share * job.workload.faults[job.fault].ms:g}"]
    return [sys.executable, "-m", "ddprof.cli.main", "run", *watched, "--", *torchrun, *wanted]
