"""Runs that have nothing to do with each other in one folder: files numbered as ranks are, or one script run twice."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.oracle.bases import draw_base
from benchmarks.oracle.draws import generator
from benchmarks.oracle.gates import is_healthy
from benchmarks.oracle.kineto import TraceWriter
from benchmarks.oracle.labels import label
from benchmarks.oracle.simulate import Run, simulate
from benchmarks.oracle.spec import Format, Scenario
from benchmarks.oracle.write import zipped

FOLDERS = {
    "unrelated": "runs that have nothing to do with each other, in files that are numbered",
    "ab_pair": "one script run twice, with another setting",
}
NAMES = ("trace{}.json.gz", "trace_{}.json.gz", "worker{}.pt.trace.json.gz", "node01_{}.1764638676000.pt.trace.json.gz")
MOST_RUNS = 4
LATEST_US = 4e7  # how much later a run may have begun
ATTEMPTS = 20
OF_ONE_JOB = (
    "straggler.compute", "straggler.host", "straggler.imbalance", "straggler.unexplained", "input.straggler",
    "input.unsharded", "comm.latency_bound", "comm.no_overlap", "comm.bandwidth_bound", "comm.slow_link",
    "comm.sharding", "comm.barrier", "pipeline.bubble", "pipeline.imbalance",
)  # fmt: skip


@dataclass(frozen=True)
class Together:
    """Independent runs of one device each, their files' names, and when each began (microseconds after the first)."""

    mess: str
    seed: int
    scenarios: tuple[Scenario, ...]
    names: tuple[str, ...]
    begins_us: tuple[float, ...]


def together(seed: int, mess: str) -> Together:
    """The folder of a seed."""
    draw = generator(seed, "together", mess)
    count = 2 if mess == "ab_pair" else int(draw.integers(2, MOST_RUNS + 1))
    first = _alone(draw, seed)
    runs = [first]
    for number in range(1, count):
        other = _alone(draw, seed + number)
        if mess == "ab_pair":  # the same script in single precision, or with another batch
            model = replace(first.model, unit_us=first.model.unit_us * float(draw.uniform(0.5, 1.9)))
            other = replace(first, seed=seed + number, model=model)
        runs.append(other)
    name = NAMES[int(draw.integers(len(NAMES)))]
    begins = tuple(0.0 if number == 0 or draw.uniform() < 0.3 else float(draw.uniform(0, LATEST_US))
                   for number in range(count))  # fmt: skip
    return Together(mess, seed, tuple(runs), tuple(name.format(number) for number in range(count)), begins)


def _alone(draw: np.random.Generator, seed: int) -> Scenario:
    """A healthy job of one device."""
    for _ in range(ATTEMPTS):
        base = draw_base(draw, "ddp", f"alone_{seed}", seed, world=1)
        base = replace(base, kind="clean.plain", format=Format(distributed_info=False, shapes=base.format.shapes))
        if is_healthy(base):
            return base
    return base


def write_together(folder: Together, target: Path) -> dict[str, Any]:
    """Write `traces/` and `label.json` into `target`; returns the label."""
    (target / "traces").mkdir(parents=True, exist_ok=True)
    runs = [simulate(scenario) for scenario in folder.scenarios]
    events = size = 0
    for run, name, begins in zip(runs, folder.names, folder.begins_us, strict=True):
        text = TraceWriter(run, run.ranks[0], begins_us=begins).text()
        events += text.count('"ph"')
        size += len(text)
        zipped(target / "traces" / name, text.encode())
    content = _label(folder, runs) | {"events": events, "bytes": size}
    (target / "label.json").write_text(json.dumps(content, indent=1) + "\n")
    return content


def _label(folder: Together, runs: list[Run]) -> dict[str, Any]:
    """The label of the first run, and what is true of the folder."""
    steps = [round(run.step_us(), 2) for run in runs]
    return label(runs[0]) | {
        "scenario": f"{folder.mess}_{folder.seed}",
        "note": "independent runs of one device each in one folder",
        "parallelism": "unrelated",
        "mess": [folder.mess],
        "skip_ledger": True,
        "skip_numbers": True,
        "tolerated_ids": ["host.launch_bound", "host.sync", "memory.headroom"],
        "forbidden_ids": list(OF_ONE_JOB),
        "allowed": [],
        "accept_step_us": steps,
        "step_units": steps,
        "independent_runs": len(runs),
        "run_step_us": steps,
        "generator": {"kind": folder.mess, "seed": folder.seed},
    }
