"""A training step and its phases."""

from __future__ import annotations

from typing import NamedTuple

DATA, FORWARD, BACKWARD, OPTIMIZER, COLLECTIVE = range(5)
PHASE_NAMES = ("data", "forward", "backward", "optimizer", "collective")
REST = len(PHASE_NAMES)  # the training thread is in none of them


class Step(NamedTuple):
    """One closed step, in Unix ns. Phases include what ran inside them, but for a closure's forward and backward.

    `waited_ns`: time in which the training thread was ready to run and had no CPU, then the same in each phase; all -1
    where the kernel does not count it.
    """

    number: int
    start_ns: int
    end_ns: int
    data_ns: int
    forward_ns: int
    backward_ns: int
    optimizer_ns: int
    collective_ns: int
    waited_ns: int
    data_waited_ns: int
    forward_waited_ns: int
    backward_waited_ns: int
    optimizer_waited_ns: int
    profiled: bool

    def record(self) -> dict[str, int | bool]:
        """The step in the sidecar's form: without waits that are not counted, or not there in a phase."""
        fields = {name: value for name, value in self._asdict().items() if value > 0 or not name.endswith("waited_ns")}
        if self.waited_ns == 0:  # it is counted
            fields["waited_ns"] = 0
        return {"index": fields.pop("number"), **fields}
