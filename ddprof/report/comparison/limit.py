"""A limit on the slowdown of a step, and the check of a comparison against it."""

from __future__ import annotations

import re

from ddprof.errors import UsageError
from ddprof.report.comparison.compare import Comparison
from ddprof.units import format_share, format_us

_LIMIT = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(%|us|ms|s)")
_UNITS_US = {"us": 1.0, "ms": 1e3, "s": 1e6}


def parse_limit(text: str, name: str) -> tuple[float, str]:
    """Parse a limit: "5%" -> (5.0, "%"). Raises UsageError, naming the option `name`."""
    match = _LIMIT.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{name} {text}: want a share or a time per step, like 5% or 10ms")
    return float(match.group(1)), match.group(2)


def regressions(comparison: Comparison, limit: tuple[float, str]) -> list[str]:
    """The slowdown in words where it exceeds the limit and the noise (or the noise is unknown), else nothing."""
    value, unit = limit
    step = comparison.step
    allowed_us = step.before_us * value / 100 if unit == "%" else value * _UNITS_US[unit]
    is_noise = step.low_us is not None and step.low_us <= 0
    if step.change_us <= allowed_us or is_noise or step.outcome in ("noise", "disagree"):
        return []
    share = step.change_us / step.before_us
    return [f"the step is {format_us(step.change_us)} ({format_share(share)}) slower, allowed is {value:g}{unit}"]
