"""Score of one labelled run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SaidFinding:
    """A finding above "info" that was said of a labelled run, on which basis, under which doubts, and if it is true.

    `right`: a fault of the label has this identifier and these ranks, or the label tolerates the identifier.
    """

    id: str
    basis: str
    doubts: tuple[str, ...]
    right: bool


@dataclass(frozen=True)
class RunScore:
    """Score of one labelled run. Errors are shares: of wall time (ledger), of the true step (the others).

    `wall_error` is about the measured step, `gain_error` how far the stated gain lies outside of the true range.
    """

    name: str
    clean: bool
    faults: tuple[str, ...]
    found: tuple[bool, ...]  # per fault: identifier and culprits right
    named: tuple[bool, ...]  # per fault: identifier right, culprits or not
    false: tuple[str, ...]
    headline_right: bool
    bound_right: bool
    ledger_error: float | None  # None: the label says that the files do not show enough
    worst_cause: str
    step_error: float | None  # predicted step without each fault, worst
    clock_inside: tuple[bool, ...]  # per host besides the reference
    replay_error: float | None
    problem: str = ""
    mess: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()  # forbidden identifiers that were said
    gain_error: float | None = None  # the worst of the faults that were found
    wall_error: float | None = None
    said: tuple[SaidFinding, ...] = ()
    fixes: tuple[bool | None, ...] = ()  # per fault: the first fix is the one that helps; None: not found, or unknown

    @property
    def right(self) -> bool:
        """Every fault found, nobody accused falsely, nothing forbidden said."""
        return all(self.found) and not self.false and not self.forbidden and not self.problem
