"""Marks of the profiler and of optimizers, and the table of steps that marks make."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from ddprof.analyzers.facts.model import STEPS
from ddprof.tables import Array, Table

PROFILER_STEP = re.compile(r"^ProfilerStep\s*#\s*(\d+)")
OPTIMIZER = re.compile(r"^Optimizer\.step#|^ddprof::optimizer$|^optimizer[._ ]?step|optimizer_step", re.IGNORECASE)
_LONGEST_NUMBER = 15  # digits: a step each microsecond for thirty years


def numbers_of(strings: Sequence[str], names: Array) -> Array:
    """The numbers of marks; one that no counter reaches is that of the mark before and one."""
    numbers: list[int] = []
    for name in names.tolist():
        found = PROFILER_STEP.match(strings[name])
        is_usable = found is not None and len(found[1]) <= _LONGEST_NUMBER
        numbers.append(int(found[1]) if found and is_usable else numbers[-1] + 1 if numbers else 0)
    return np.array(numbers, np.int64)


def host_steps(index: Array, start_ns: Array, end_ns: Array) -> Table:
    """STEPS that last from one host mark to the next; device_time.py moves them to the device's time."""
    return STEPS.table(
        {"index": index, "start_ns": start_ns, "end_ns": end_ns, "mark_ns": start_ns, "mark_end_ns": end_ns}
    )
