"""The lines of the script that call collectives: as capture noted them, else from Python frames that were recorded."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.script.calls import CALLS
from ddprof.analyzers.facts.script.tree import written
from ddprof.analyzers.job.script.lines import lines_in
from ddprof.intervals import Intervals
from ddprof.sidecar.calls import ScriptCall
from ddprof.tables import Array

# A call is noted right before its range opens, by clocks that agree to within 0.1 ms; what is noted this long before
# is another call, or the thread had no core in between.
NOTED_NS = 20_000_000


@dataclass(frozen=True)
class Caller:
    """A line that calls: "train.py:88 evaluate()", with the function of a library that it calls, if it calls one."""

    words: str
    calls: int


def noted_calls(facts: RankFacts, op: str, start_ns: Array) -> list[ScriptCall | None]:
    """What capture noted of each call of a function that begins at `start_ns` (sorted); None where it noted nothing."""
    noted = sorted((call for call in facts.sidecar.window_calls if call.op == op), key=lambda call: call.entered_ns)
    entered = np.array([call.entered_ns for call in noted], np.int64)
    at = np.searchsorted(entered, start_ns, side="right") - 1
    near = (at >= 0) & (start_ns - entered[np.maximum(at, 0)] <= NOTED_NS) if len(entered) else at >= 0
    return [noted[int(row)] if found else None for row, found in zip(at, near, strict=True)]


def noted_of_script(facts: RankFacts) -> list[ScriptCall | None]:
    """`noted_calls` of every row of the rank's script_calls."""
    calls = facts.script_calls
    found: list[ScriptCall | None] = [None] * len(calls)
    for code in np.unique(calls["call"]).tolist():
        rows = np.flatnonzero(calls["call"] == code)
        noted = noted_calls(facts, CALLS[code], calls["start_ns"][rows])
        for row, call in zip(rows.tolist(), noted, strict=True):
            found[row] = call
    return found


def through_of(facts: RankFacts) -> list[str]:
    """For each row of script_calls the library's function that the script calls for it, "package function"; "" where it
    calls the collective itself, or that is not known."""
    return ["" if call is None else call.through for call in noted_of_script(facts)]


def callers(facts: RankFacts, noted: list[ScriptCall | None], during: Intervals) -> list[Caller]:
    """The lines that make some calls, most calls first: as noted, else that in which the host is `during` them."""
    known = Counter(_words(call) for call in noted if call is not None)
    if known:
        return [Caller(words, count) for words, count in known.most_common()]
    lines = [line for line in lines_in(facts, during) if line.file]
    return [Caller(written(line.file, line.line, line.function), 0) for line in lines[:1]]


def _words(call: ScriptCall) -> str:
    file = call.file.replace("\\", "/").rpartition("/")[2]
    where = written(file, call.line, call.function)
    return f"{where}, in {call.through.partition(' ')[2]}()" if call.through else where
