"""Real sweeps of two settings against what the planners advise from one traced run.

    python benchmarks/sweep_settings.py --out benchmarks/results/sweeps.json     # three minutes on a quiet machine
    python benchmarks/plot_sweeps.py                                             # docs/figures/sweep-*.svg

Two processes over gloo train `workloads/mnist_ddp.py`. Each value of a setting is run `--repeat` times without ddprof,
in shuffled order, and judged by the least median step; one run is traced, and `ddprof plan` reads it. The advice is
good if the measured step at the advised value is within 3 % of the best measured one.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone")
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
        ("--hidden", "1024", "--depth", "64", "--steps", "30"),
    ),
    Sweep(
        "loader", "num_workers", "--workers", (0, 1, 2, 3, 4), 0,
        ("--fault", "slow-loader", "--fault-ms", "80", "--steps", "40"),
    ),
)  # fmt: skip


def command(sweep: Sweep, value: float) -> list[str]:
    """The training command at a value of the setting."""
    return [*TORCHRUN, WORKLOAD, *sweep.workload, sweep.option, f"{value:g}"]


def measured_ms(sweep: Sweep, value: float) -> float:
    """Median step of one run, as the workload reports it. Raises CalledProcessError where it fails."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(command(sweep, value), capture_output=True, text=True, check=True, env=environment)
    line = next(text for text in ran.stdout.splitlines() if text.startswith('{"ddprof_workload"'))
    return float(json.loads(line)["step_ms_median"])


def planned(sweep: Sweep, folder: Path) -> dict[str, Any]:
    """What the planner says of one traced run."""
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
        *command(sweep, sweep.traced_value),
    ]
    subprocess.run([*ddprof, *traced], check=True, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    said = subprocess.run(
        [*ddprof, "plan", sweep.plan, str(folder), "--format", "json"], capture_output=True, check=True
    )
    return dict(json.loads(said.stdout))


def run(sweep: Sweep, repeat: int) -> dict[str, Any]:
    """One sweep: measured steps per value, the plan, and how the two compare."""
    with tempfile.TemporaryDirectory() as folder:
        plan = planned(sweep, Path(folder))
    order = [value for value in sweep.values for _ in range(repeat)]
    random.Random(7).shuffle(order)
    steps: dict[float, list[float]] = {value: [] for value in sweep.values}
    for value in order:
        steps[value].append(measured_ms(sweep, value))
        print(sweep.knob, value, steps[value][-1], flush=True)
    least = {value: min(found) for value, found in steps.items()}
    curve = plan["caps"] if sweep.plan == "buckets" else plan["workers"]
    advised = float(plan["advised_mb"] if sweep.plan == "buckets" else plan["advised_workers"])
    nearest = min(sweep.values, key=lambda value: abs(value - advised))
    best = min(least.values())
    return {
        "knob": sweep.knob,
        "workload": list(sweep.workload),
        "traced_value": sweep.traced_value,
        "measured_ms": {f"{value:g}": [round(ms, 3) for ms in found] for value, found in steps.items()},
        "least_ms": {f"{value:g}": round(ms, 3) for value, ms in least.items()},
        "predicted_ms": {f"{p['value']:g}": round(p["step_us"] / 1e3, 3) for p in curve["points"]},
        "advised": advised,
        "advised_as_run": nearest,
        "advised_over_best": round(least[nearest] / best, 4),
        "spread": round(statistics.median(max(f) / min(f) for f in steps.values()) - 1, 4),
    }


def main() -> None:
    """Run the sweeps and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--only", choices=[sweep.plan for sweep in SWEEPS])
    options = parser.parse_args()
    known = json.loads(options.out.read_text()) if options.out.exists() else {}
    for sweep in SWEEPS:
        if options.only in (None, sweep.plan):
            known[sweep.plan] = run(sweep, options.repeat)
            options.out.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
            print(sweep.plan, json.dumps(known[sweep.plan]))


if __name__ == "__main__":
    main()
