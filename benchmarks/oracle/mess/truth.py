"""Further truth of a messy recording: its mess, the right steps, and forbidden findings."""

from __future__ import annotations

from typing import Any

from benchmarks.oracle.mess.catalogue import MESSES
from benchmarks.oracle.mess.kind import RECURRING_IDS, STARTUP_IDS
from benchmarks.oracle.simulate import Run

MARKS_AGREE = 0.03  # of the step: beyond it the host's marks say nothing about the device's step


def messy_truth(run: Run, label: dict[str, Any]) -> dict[str, Any]:
    """The further keys of the label, and those that a mess changes; nothing where there is no mess."""
    messes = [(MESSES[mess.name], mess) for mess in run.scenario.mess]
    if not messes:
        return {}
    once = any(kind.once for kind, _ in messes)
    tolerated = {*label["tolerated_ids"], *STARTUP_IDS, *(i for kind, _ in messes for i in kind.tolerates)}
    right = {*tolerated, *label["acceptable_finding_ids"]}
    step, marked = label["step_us"], round(run.marked_us(), 2)
    agree = abs(marked / step - 1.0) <= MARKS_AGREE and not once
    return {
        "mess": [mess.name for _, mess in messes],
        "recorded_steps": len(run.ranks[0].marks) - 1,
        "step_units": [step],
        "all_steps_us": marked,
        "accept_step_us": [step, marked] if agree else [step],
        "allowed": [],
        "skip_ledger": any(kind.unbooked for kind, _ in messes),
        "tolerated_ids": sorted(tolerated),
        "forbidden_ids": sorted(set(RECURRING_IDS) - right) if once else [],
        "health": [
            *({"issue": "missing_rank", "rank": rank} for rank in run.scenario.missing_ranks),
            *(entry for kind, mess in messes for entry in kind.health(mess)),
        ],
    }
