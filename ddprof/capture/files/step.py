"""A training step and its phases."""

from __future__ import annotations

from typing import NamedTuple

DATA, FORWARD, BACKWARD, OPTIMIZER, COLLECTIVE = range(5)
PHASE_NAMES = ("data", "forward", "backward", "optimizer", "collective")
REST = len(PHASE_NAMES)  # the training thread is in none of them


class Step(NamedTuple):
    """One closed step, in Unix ns. Phases include what ran inside them, but for a closure's forward and backward."""

    number: int
    start_ns: int
    end_ns: int
    data_ns: int
    forward_ns: int
    backward_ns: int
    optimizer_ns: int
    collective_ns: int
    profiled: bool

    def record(self) -> dict[str, int | bool]:
        """The step in the sidecar's form."""
        fields = self._asdict()
        return {"index": fields.pop("number"), **fields}
