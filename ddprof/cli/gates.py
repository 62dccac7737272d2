"""CI gates of commands, such as `--fail-on`: exit code 3 and one line per violation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ddprof.cli.load import say
from ddprof.errors import GateFailed
from ddprof.report.model import Report

if TYPE_CHECKING:
    from ddprof.report.gate import Gate

FAIL_ON_HELP = (
    "Exit with 3 if the run has this: warning, critical, 'straggler.*', 'comm_wait>20%', 'step>120ms'. Repeatable."
)


def gates_of(expressions: Sequence[str]) -> list[Gate]:
    """Parse the expressions of `--fail-on`. Raises UsageError."""
    if not expressions:
        return []
    from ddprof.report.gate import parse_gate

    return [parse_gate(expression) for expression in expressions]


def check_gates(gates: Sequence[Gate], reports: Sequence[Report]) -> None:
    """Raise GateFailed, naming the first violation, where a report violates a gate."""
    fail(violation.text for gate in gates for report in reports for violation in gate(report))


def fail(violations: Iterable[str]) -> None:
    """Raise GateFailed with the first violation after printing the others; do nothing where there is none."""
    lines = list(violations)
    for violation in lines[1:]:
        say(f"gate failed: {violation}")
    if lines:
        raise GateFailed(f"gate failed: {lines[0]}")
