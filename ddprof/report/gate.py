"""CI gates: `--fail-on EXPR` on a report.

An expression is a severity (`warning`: at least that bad), a finding id or glob (`straggler.*`, findings of at least
"warning"; `straggler.*:info` for any), or a measure against a limit: `comm_wait>20%` (share of the step), `step>120ms`,
`dataloader>=500us`, `recoverable>10%`. Measures: `step`, every ledger cause, `exposed_comm` (transfer + wait), `idle`
(all of the step in which the device does nothing), `recoverable` (the largest finding).
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from ddprof.causes import CAUSES
from ddprof.errors import NoUsableInput, UsageError
from ddprof.findings import Finding, Remark
from ddprof.report.model import Report
from ddprof.units import format_share, format_us

SEVERITIES = ("info", "warning", "critical")
MEASURES = ("step", "exposed_comm", "idle", "recoverable", *CAUSES)
_UNITS_US = {"us": 1.0, "ms": 1e3, "s": 1e6}
_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_MEASURE = re.compile(r"([a-z_]+)\s*(>=|<=|>|<)\s*([0-9.]+)\s*(%|us|ms|s)")
_GLOB = re.compile(r"([a-z0-9_*?]+(?:\.[a-z0-9_*?]+)+|\*)(?::(info|warning|critical))?")


@dataclass(frozen=True)
class Violation:
    """One violation of a gate: `key` (finding id or expression) identifies it, `text` describes it."""

    key: str
    text: str


Gate = Callable[[Report], list[Violation]]  # a parsed expression: what violates it; [] where the report passes


def parse_gate(expression: str) -> Gate:
    """Parse one expression. Raises UsageError."""
    text = expression.strip()
    if text in SEVERITIES:
        return lambda report: _findings(report, "*", text)
    measure = _MEASURE.fullmatch(text)
    if measure:
        name, sign, number, unit = measure.groups()
        return _measure_gate(text, name, sign, number, unit)
    glob = _GLOB.fullmatch(text)
    if glob:
        pattern, floor = glob.group(1), glob.group(2) or "warning"
        return lambda report: _findings(report, pattern, floor)
    forms = "a severity (warning), a finding ('straggler.*') or a limit ('comm_wait>20%', 'step>120ms')"
    raise UsageError(f"--fail-on {expression}: want {forms}")


def _measure_gate(text: str, name: str, sign: str, number: str, unit: str) -> Gate:
    if name not in MEASURES:
        raise UsageError(f"--fail-on {text}: no measure {name!r}; there are {', '.join(MEASURES)}")
    try:
        limit = float(number)
    except ValueError:
        raise UsageError(f"--fail-on {text}: {number!r} is no number") from None
    if name == "step" and unit == "%":
        hint = "ddprof compare --max-regression compares runs"
        raise UsageError(f"--fail-on {text}: a limit on the step is a time (120ms); {hint}")

    def violations(report: Report) -> list[Violation]:
        value_us, step_us = _measure_us(report, name), report.steps.wall_us
        value = value_us / step_us * 100 if unit == "%" else value_us / _UNITS_US[unit]
        if not _OPERATORS[sign](value, limit):
            return []
        shown = format_share(value / 100) if unit == "%" else format_us(value_us)
        return [Violation(text, f"{name} is {shown} ({text})")]

    return violations


def _measure_us(report: Report, name: str) -> float:
    if not (math.isfinite(report.steps.wall_us) and report.steps.wall_us > 0):
        raise NoUsableInput(
            f"--fail-on: {report.run.name or 'the run'} has no measured step, so {name} cannot be judged"
        )
    job = report.ledger.job
    if name == "step":
        return report.steps.wall_us
    if name == "recoverable":
        return max((f.recoverable_us.value for f in report.findings), default=0.0)
    if name == "exposed_comm":
        return job.get("comm_transfer", 0.0) + job.get("comm_wait", 0.0)
    if name == "idle":
        return sum(job.get(cause, 0.0) for cause in CAUSES if CAUSES[cause].is_idle)
    return job.get(name, 0.0)


def _findings(report: Report, pattern: str, floor: str) -> list[Violation]:
    wanted = SEVERITIES[SEVERITIES.index(floor) :]
    candidates: list[tuple[str, Finding | Remark]] = [(remark.severity, remark) for remark in report.training.remarks]
    candidates += [(report.severity_of(finding), finding) for finding in report.ranked_findings()]
    return [
        Violation(one.id, f"{severity} {one.id}: {one.summary}")
        for severity, one in candidates
        if fnmatchcase(one.id, pattern) and severity in wanted
    ]
