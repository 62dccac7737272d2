"""What capture wrote of a job that took turns: only what belongs to whole steps in which it was not held stays."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ddprof.capture.files.layout import SIDECAR_SUFFIX, WORKERS_SUFFIX

Span = tuple[int, int]  # ns since the epoch


def keep_turns(folder: Path, held_at_ns: int, turns: Sequence[Span], period: int) -> None:
    """Cut the sidecars and loader workers' logs below `folder` down to the trace windows (and the step after each, in
    which the trace is written) and the turns.

    Of a turn whole periods stay, without its first step: it finds cold caches and what waited for it. So a report of
    the folder is about the job as it ran in its turns. `held_at_ns`: when it was held for the first time.
    """
    for path in folder.glob(f"*{SIDECAR_SUFFIX}"):
        _cut_sidecar(path, turns, period)
    for path in folder.glob(f"*{WORKERS_SUFFIX}"):  # a fetch that was held looks as long as the others' turns
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        spans = [(0, held_at_ns), *turns]
        path.write_text("".join(line for line in lines if line.endswith("\n") and _inside(json.loads(line), spans)))


def whole_periods(inside: int, period: int) -> slice:
    """Of so many steps inside a turn those that count."""
    return slice(1, 1 + max(0, inside - 1) // period * period)


def _cut_sidecar(path: Path, turns: Sequence[Span], period: int) -> None:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    steps = [step for step in content["steps"] if step["start_ns"] is not None]
    traced = 2 + max((i for i, step in enumerate(steps) if step.get("profiled")), default=-2)
    kept = [steps[:traced]]
    spans = [(0, _end_ns(kept[0][-1]))] if kept[0] else []
    for turn in turns:
        mine = [step for step in steps[traced:] if _inside(step, [turn])]
        kept.append(mine[whole_periods(len(mine), period)])
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
