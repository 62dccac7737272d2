"""Test of a healthy job: no possible change would save three percent of the step."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.oracle.faults import build
from benchmarks.oracle.ledger import ledger
from benchmarks.oracle.simulate import simulate, step_time
from benchmarks.oracle.spec import Scenario

MAX_RECOVERABLE = 0.026  # below the contract's warning threshold of 3 %, with some room
CAUSES = ("dataloader", "host_launch", "host_sync", "memcpy", "gc", "comm_transfer")
MAX_WAIT = 0.035  # mean over ranks of waiting for others: what equal ranks would save is less


def is_healthy(scenario: Scenario) -> bool:
    """True when every cause costs little, communication hides, and no rank is late for a reason."""
    run = simulate(scenario, recording=False)
    step = run.step_us()
    if 1.0 - step_time(scenario, build(scenario, comm_free=True)) / step > MAX_RECOVERABLE:
        return False
    if not scenario.faults and scenario.quirks and quirk_gain(scenario, step) > MAX_RECOVERABLE:
        return False
    job = ledger(run)["job"]
    costs = {cause: float(job[cause]) / step for cause in CAUSES}  # type: ignore[arg-type]
    small = all(
        cost <= MAX_RECOVERABLE for cause, cost in costs.items() if cause != "host_launch" or scenario.parallel.pp < 2
    )
    return small and float(job["comm_wait"]) / step <= MAX_WAIT  # type: ignore[arg-type]


def quirk_gain(scenario: Scenario, step: float) -> float:
    """Cost of the look-alikes as a share of the step (us), without recomputation, which memory may need."""
    needed = tuple(quirk for quirk in scenario.quirks if quirk.id == "quirk.recompute")
    return 1.0 - step_time(replace(scenario, quirks=needed)) / step
