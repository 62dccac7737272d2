"""Real sweeps of two settings against what the planners advise from one traced run.

    python -m benchmarks.sweep_settings --out benchmarks/results/sweeps.json     # eight minutes on a quiet machine
    python benchmarks/plot_sweeps.py                                             # docs/figures/sweep-*.svg

Two processes over gloo train `workloads/mnist_ddp.py`, without ddprof, one job per value of the setting. The jobs take
turns, so that all are measured under the same conditions; a value's step is the interquartile mean over its turns. One
more run is traced, and `ddprof plan` reads it. The advice is good if the measured step at the advised value is within
3 % of the best measured one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.workload_pairs.rendezvous import rendezvous
from benchmarks.workload_pairs.turns import LAPS, Turns, take_turns

ROOT = Path(__file__).resolve().parent.parent
ENDLESS, WARM_STEPS = 1_000_000, 20
ROUNDS = 20  # the values differ by less than one turn from the next
WORKLOAD = str(ROOT / "workloads" / "mnist_ddp.py")


@dataclass(frozen=True)
class Sweep:
    """A setting, its values, how the workload is told, and the run that the planner reads."""

    plan: str
    knob: str
    option: str
    values: tuple[float, ...]
    traced_value: float
    workload: tuple[str, ...]


SWEEPS = (
    Sweep(
        "buckets", "bucket_cap_mb", "--bucket-cap-mb", (0.02, 0.1, 1, 5, 25), 0.1,
        ("--hidden", "1024", "--depth", "64"),
    ),
    Sweep(
        "loader", "num_workers", "--workers", (0, 1, 2, 3, 4), 0,
        ("--fault", "slow-loader", "--fault-ms", "80"),
    ),
)  # fmt: skip


def command(sweep: Sweep, value: float, steps: int) -> list[str]:
    """The training command at a value of the setting."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", *rendezvous(), "--nproc-per-node=2"]
    return [*torchrun, WORKLOAD, *sweep.workload, "--steps", str(steps), sweep.option, f"{value:g}"]


def measured(sweep: Sweep, folder: Path) -> dict[float, Turns]:
    """The turns of every value. Raises RuntimeError where a job fails."""
    folders = [folder / f"{value:g}" for value in sweep.values]
    for each in folders:
        each.mkdir()
    lines = [
        [*command(sweep, value, ENDLESS), "--laps", str(each / LAPS)]
        for value, each in zip(sweep.values, folders, strict=True)
    ]
    found = take_turns(lines, folders, {**os.environ, "OMP_NUM_THREADS": "1"}, WARM_STEPS, ROUNDS)
    for value, turns in zip(sweep.values, found, strict=True):
        if turns.problem:
            raise RuntimeError(f"{sweep.knob} {value:g}: {turns.problem}")
    return dict(zip(sweep.values, found, strict=True))


def planned(sweep: Sweep, folder: Path) -> dict[str, Any]:
    """The planner's advice on one traced run."""
    ddprof = [sys.executable, "-m", "ddprof.cli.main"]
    traced = [
        "run",
        "--run-dir",
        str(folder),
        "--skip",
        "8",
        "--steps",
        "10",
        "--",
        *command(sweep, sweep.traced_value, 40),
    ]
    subprocess.run([*ddprof, *traced], check=True, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    said = subprocess.run(
        [*ddprof, "plan", sweep.plan, str(folder), "--format", "json"], capture_output=True, check=True
    )
    return dict(json.loads(said.stdout))


def run(sweep: Sweep) -> dict[str, Any]:
    """One sweep: measured steps per value, the plan, and how the two compare."""
    with tempfile.TemporaryDirectory() as folder:
        plan = planned(sweep, Path(folder) / "traced")
        turns = measured(sweep, Path(folder))
    steps = {value: found.step_ms for value, found in turns.items() if found.step_ms is not None}
    curve = plan["caps"] if sweep.plan == "buckets" else plan["workers"]
    advised = float(plan["advised_mb"] if sweep.plan == "buckets" else plan["advised_workers"])
    nearest = min(sweep.values, key=lambda value: abs(value - advised))
    return {
        "knob": sweep.knob,
        "workload": list(sweep.workload),
        "traced_value": sweep.traced_value,
        "turns_ms": {f"{value:g}": [round(ms, 3) for ms in found.turns_ms] for value, found in turns.items()},
        "measured_ms": {f"{value:g}": round(ms, 3) for value, ms in steps.items()},
        "predicted_ms": {f"{p['value']:g}": round(p["step_us"] / 1e3, 3) for p in curve["points"]},
        "advised": advised,
        "advised_as_run": nearest,
        "advised_over_best": round(steps[nearest] / min(steps.values()), 4),
    }


def main() -> None:
    """Run the sweeps and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", choices=[sweep.plan for sweep in SWEEPS])
    options = parser.parse_args()
    known = json.loads(options.out.read_text()) if options.out.exists() else {}
    for sweep in SWEEPS:
        if options.only in (None, sweep.plan):
            known[sweep.plan] = run(sweep)
            options.out.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
            print(sweep.plan, json.dumps(known[sweep.plan]))


if __name__ == "__main__":
    main()
