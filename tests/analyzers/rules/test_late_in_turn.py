"""Ranks of a Horovod job that are late in turn, by little, at first alone, or by chance."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ddprof.analyzers.engine import Options, analyze

RANKS, STEPS, STEP_S = 12, 30, 1.0
Late = Callable[[int], dict[int, float]]  # of a step: ranks that are late, by how many seconds


def found(folder: Path, late: Late) -> dict[int, str]:
    """Ranks that are named, with how loudly. Each step reduces two tensors; ranks come within 4 ms of each other."""
    draw, events = np.random.default_rng(7), []
    for pid in range(2):
        events.append({"ph": "M", "pid": pid, "name": "process_name", "args": {"name": f"grad.{pid}"}})
        for step in range(STEPS):
            begin = step * STEP_S + 0.1 * pid
            ready = {rank: begin + 0.004 * draw.random() + late(step).get(rank, 0.0) for rank in range(RANKS)}
            end = max(ready.values()) + 0.05
            events.append({"ph": "B", "pid": pid, "name": "NEGOTIATE_ALLREDUCE", "ts": begin * 1e6})
            events += [{"ph": "X", "pid": pid, "name": f"{rank}", "ts": at * 1e6} for rank, at in ready.items()]
            events.append({"ph": "E", "pid": pid, "ts": end * 1e6})
    (folder / "timeline.json").write_text(json.dumps(events))
    (report,) = analyze([str(folder)], Options(workers=1, cache=False))
    return {f.ranks[0]: report.severity_of(f) for f in report.findings if f.id == "straggler.host"}


@pytest.mark.parametrize(
    ("late", "named"),
    [
        (lambda step: {(2, 5)[step % 2]: 0.08}, {2: "warning", 5: "warning"}),
        (lambda step: {(2, 5, 9)[step % 3]: 0.08}, {2: "warning", 5: "warning", 9: "warning"}),
        (lambda step: {3: 0.02, step % RANKS: 0.08 * (step % 2)}, {3: "info"}),  # by little, beside others by chance
        (lambda step: {0: 0.5} if step < 10 else {7: 0.1}, {7: "warning"}),  # rank 0 only while the job starts
        (lambda step: {7: 0.1} if step > 14 else {}, {7: "warning"}),  # from one step on
        (lambda step: {step % RANKS: 0.05}, {}),
        (lambda step: {}, {}),
    ],
    ids=["two", "three", "by little", "at first", "from half on", "all in turn", "healthy"],
)
def test_each_rank_that_is_late_beyond_chance_is_named_and_no_other(
    tmp_path: Path, late: Late, named: dict[int, str]
) -> None:
    assert found(tmp_path, late) == named
