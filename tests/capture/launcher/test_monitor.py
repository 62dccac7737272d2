"""Monitor mode: what the watcher asks for, and what is left out of windows that cost too much."""

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from ddprof.capture.files.layout import CONTROL
from ddprof.capture.files.ring import StepRing
from ddprof.capture.files.step import Step
from ddprof.capture.launcher.host.gpus import GpuWatch
from ddprof.capture.launcher.live import LiveRank, latest_late, read_ranks, request_window
from ddprof.capture.launcher.monitor import JobMonitor, Watcher, WindowBudget
from ddprof.capture.launcher.window_cost import WindowCost

MS = 1_000_000


def step(number: int, ms: float = 20, forward_ms: float = 5, profiled: bool = False) -> Step:
    start = number * 1000 * MS
    return Step(number, start, start + int(ms * MS), MS, int(forward_ms * MS), 8 * MS, MS, 0, profiled)


def straggling(rank: int, number: int) -> Step:
    return step(number, 40, forward_ms=25 if rank == 1 else 5)


def ranks_at(until: int, make: Callable[[int, int], Step]) -> list[LiveRank]:
    """Two ranks that have just ended step `until`."""
    recent = range(max(0, until - 63), until + 1)
    return [LiveRank(rank, "h", tuple(make(rank, n) for n in recent), until + 1, MS) for rank in (0, 1)]


def asked(make: Callable[[int, int], Step], steps: int = 150) -> list[tuple[int, str]]:
    watcher = Watcher()
    answers = [(n, watcher.observe(ranks_at(n, make))) for n in range(5, steps, 5)]
    return [(n, reason) for n, reason in answers if reason]


def test_a_steady_job_its_warm_up_and_windows_are_left_alone() -> None:
    assert asked(lambda rank, n: step(n, 20 + (n * 7 % 5) * 0.4)) == []
    assert asked(lambda rank, n: step(n, 900 if n < 8 or n in (80, 81) else 20, profiled=n == 80)) == []


def test_an_outlier_and_a_lasting_slowdown_ask_once_and_a_straggler_is_named_with_its_phase() -> None:
    (answer,) = asked(lambda rank, n: step(n, 900 if n == 102 and rank == 1 else 20))
    assert answer == (105, "step 102 took 900 ms, 20 ms is usual")
    assert asked(lambda rank, n: step(n, 90 if n == 102 and rank == 1 else 20)) == []  # a window costs more
    every = asked(lambda rank, n: step(n, 900 if n % 40 == 2 else 20), 1200)
    assert [n for n, _ in every if n > 120] == []  # a checkpoint every forty steps is as it always was
    (answer,) = asked(lambda rank, n: step(n, 20 if n < 100 else 26), 220)
    assert "26 ms now, 20 ms before" in answer[1]

    (answer,) = asked(straggling)
    assert answer[1] == "rank 1 is late by 20 ms per step, in forward"
    late = latest_late(ranks_at(50, straggling))
    assert late is not None and (late.rank, late.phase) == (1, "forward")


def test_windows_are_bounded_in_an_hour_and_in_megabytes_a_day() -> None:
    budget = WindowBudget()
    asked_at = [second for second in range(0, 8 * 3600, 5) if budget.allows(1e6 + second, 0)]
    assert min(later - before for before, later in pairwise(asked_at)) >= 120 and len(asked_at) == 8 * 6
    budget, written = WindowBudget(), 0
    for minute in range(0, 2 * 24 * 60, 15):
        written += 40 << 20 if budget.allows(60.0 * minute, written) else 0
    assert written <= 2 * ((1 << 30) + (40 << 20))


def test_of_a_rank_that_was_restarted_the_newest_life_counts(tmp_path: Path) -> None:
    for pid, restart, steps, began_ns in ((9, 0, 500, MS), (7, 1, 40, 2 * MS), (8, 2, 3, 3 * MS)):
        about = {"rank": 0, "host": "h", "restart": restart, "started_ns": began_ns}
        ring = StepRing(tmp_path / f"rank0.h.{pid}.{restart}.ring", about)
        for number in range(steps):
            ring.write(step(number))
    assert [(rank.rank, rank.last_step) for rank in read_ranks(tmp_path)] == [(0, 2)]


def test_window_is_asked_for_ahead_of_every_rank(tmp_path: Path) -> None:
    first = request_window(tmp_path, ranks_at(100, lambda rank, n: step(n)), 5, "why")
    request = json.loads((tmp_path / "control.json").read_text())
    assert first == 100 + 2 + 75  # 1.5 s of 20 ms steps
    earlier = request.pop("id")
    assert request == {"action": "trace", "first_step": first, "steps": 5, "reason": "why", "before": []}
    request_window(tmp_path, [], 5, "again")
    assert json.loads((tmp_path / "control.json").read_text())["id"] == earlier + 1


def test_monitor_writes_counters_and_its_reason(tmp_path: Path) -> None:
    rings = [StepRing(tmp_path / f"rank{rank}.h.{rank}.0.ring", {"rank": rank, "host": "h"}) for rank in (0, 1)]
    monitor = JobMonitor(tmp_path, 5, leader=True, pid=7, gpus=GpuWatch(None))
    for number in range(100):
        for rank, ring in enumerate(rings):
            ring.write(straggling(rank, number))
        monitor.tick()
    assert len(monitor.reasons) == 1 and "rank 1 is late" in monitor.reasons[0]
    (log,) = tmp_path.glob("host.*.7.counters.jsonl")
    sample = json.loads(log.read_text().splitlines()[0])
    assert sample["cpu"]["jiffies"]["user"] > 0 and sample["memory"]["total_bytes"] > 2**20


MS = 1_000_000
EVERY, STEPS = 40, 5


def in_dear_windows(slowed: float) -> Callable[[int, int], Step]:
    """Windows every 40 steps, whose steps take longer on the last rank; the step after each takes long on both."""

    def make(rank: int, number: int) -> Step:
        is_traced = number % EVERY < STEPS
        took = 10 * (slowed if is_traced and rank == 1 else 1) + 300 * (number % EVERY == STEPS)
        return step(number, took, profiled=is_traced)

    return make


COSTS = {
    "within what is usual": (None, 1.1, []),
    "as usual: windows go on": (None, 1.9, [1, 2]),
    "as asked for: they end": (0.05, 1.1, [1, 2, 3]),
    "what is asked for is held": (0.05, 1.04, []),
}


@pytest.mark.parametrize("case", COSTS)
def test_each_window_that_is_too_dear_leaves_out_one_thing_more(case: str, tmp_path: Path) -> None:
    most, slowed, left_out = COSTS[case]
    cost, said = WindowCost(tmp_path, most), []
    for until in range(40, 400, 3):
        cost.look(ranks_at(until, in_dear_windows(slowed)))
        if (tmp_path / CONTROL).exists():
            request = json.loads((tmp_path / CONTROL).read_text())
            said += [request] if request not in said else []
    assert [request["steps"] for request in said] == left_out
    for before, request in enumerate(said):  # after the window that was too dear has ended, and before no rank's step
        assert request["action"] == "less" and request["first_step"] > 40 * (before + 1) + STEPS
        assert request["reason"].startswith(f"steps in a window took {100 * (slowed - 1):.0f} % longer")
