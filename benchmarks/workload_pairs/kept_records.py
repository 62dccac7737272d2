"""Cuts what capture recorded of a job that took turns down to the time in which the job ran.

Between its turns a job is stopped (SIGSTOP), so a step, a pause or a fetch that was running then is recorded with the
turns of the other jobs in it. What stays is the trace window, the step after it, and the whole steps inside turns.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ddprof.capture.files.layout import SIDECAR_SUFFIX, WORKERS_SUFFIX

Span = tuple[int, int]  # ns since the epoch


def keep_turns(folder: Path, held_at_ns: int, turns: Sequence[Span], period: int) -> None:
    """Cut the sidecars and the loader workers' logs of the run folder.

    Of the sidecars stay the steps up to the one after the last trace window (in which the trace is written) and
    `whole_periods` of each turn, with the pauses and other timed records inside these steps. Of the workers' logs stay
    the fetches that lie within one turn, or before `held_at_ns`, when the job was stopped for the first time. `period`:
    steps within which every fault repeats.
    """
    for path in folder.glob(f"*{SIDECAR_SUFFIX}"):
        _cut_sidecar(path, turns, period)
    for path in folder.glob(f"*{WORKERS_SUFFIX}"):
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        spans = [(0, held_at_ns), *turns]
        path.write_text("".join(line for line in lines if line.endswith("\n") and _inside(json.loads(line), spans)))


def whole_periods(steps: int, period: int) -> slice:
    """Steps inside a turn that count: whole periods, after the first step, which meets cold caches."""
    return slice(1, 1 + max(0, steps - 1) // period * period)


def _cut_sidecar(path: Path, turns: Sequence[Span], period: int) -> None:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    steps = [step for step in content["steps"] if step["start_ns"] is not None]
    after_window = 2 + max((i for i, step in enumerate(steps) if step.get("profiled")), default=-2)
    kept = [steps[:after_window]]
    spans = [(0, _end_ns(kept[0][-1]))] if kept[0] else []
    for turn in turns:
        of_turn = [step for step in steps[after_window:] if _inside(step, [turn])]
        kept.append(of_turn[whole_periods(len(of_turn), period)])
    spans += [(part[0]["start_ns"], _end_ns(part[-1])) for part in kept[1:] if part]
    for name, value in content.items():
        if isinstance(value, list) and value and isinstance(value[0], dict) and "start_ns" in value[0]:
            content[name] = [record for record in value if record["start_ns"] is None or _inside(record, spans)]
    content["steps"] = [step for part in kept for step in part]
    content["steps_total"] = len(content["steps"])
    path.write_text(json.dumps(content), encoding="utf-8")


def _inside(record: Mapping[str, Any], spans: Sequence[Span]) -> bool:
    return any(start <= record["start_ns"] and _end_ns(record) <= end for start, end in spans)


def _end_ns(record: Mapping[str, Any]) -> int:
    return int(record["end_ns"] if "end_ns" in record else record["start_ns"] + record.get("dur_ns", 0))
