"""Host marks of a step, from which an execution derives the start of the backward pass."""

from __future__ import annotations

from dataclasses import dataclass

BACKWARD_SHARE = 2 / 3  # of a step's compute, where no range tells forward from backward: twice forward's products


@dataclass(frozen=True)
class StepMarks:
    """Host times of one step, ns on the rank's own clock."""

    start_ns: int
    forward_end_ns: int | None  # end of the last forward; None where that is unknown, or when kernels were launched
    until_ns: int  # start of the last optimizer, or the end of the step
