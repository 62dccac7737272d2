"""A rank's file as rows, before they become text: what a mess may drop, add or rename."""

from __future__ import annotations

from typing import NamedTuple

COMPLETE, FLOW_START, FLOW_END, TEXT = "X", "s", "f", ""
DEVICE = frozenset({"kernel", "gpu_memcpy"})
CALLS = frozenset({"cuda_runtime", "cuda_driver"})
STEP_MARKS = ("ProfilerStep#", "training_step")


class Row(NamedTuple):
    """One event. Times are true microseconds; `place` and `args` are JSON text; `correlation` ties a call to its work.

    A row of phase `TEXT` holds its finished text in `args`.
    """

    phase: str
    category: str
    name: str
    place: str
    start: float
    dur: float
    args: str
    correlation: int = 0
    step: int = -1  # the recorded step that launched a device operation

    @property
    def is_mark(self) -> bool:
        """True for a step range, on the host or on the device."""
        return self.category.endswith("user_annotation") and self.name.startswith(STEP_MARKS)
