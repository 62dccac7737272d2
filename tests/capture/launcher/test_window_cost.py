"""Windows that cost too much: what the launcher asks the ranks for."""

import json
from pathlib import Path

import pytest

from ddprof.capture.files.layout import CONTROL
from ddprof.capture.files.step import Step
from ddprof.capture.launcher.live import LiveRank
from ddprof.capture.launcher.window_cost import WindowCost

MS = 1_000_000
EVERY, STEPS = 40, 5


def ranks_at(until: int, slowed: float, ranks: int = 2) -> list[LiveRank]:
    """Ranks that have ended step `until`, with windows every 40 steps in which steps take longer, on the last rank."""
    found = []
    for rank in range(ranks):
        rows = []
        for number in range(max(0, until - 100), until + 1):
            is_traced = number % EVERY < STEPS
            took = 10 * (slowed if is_traced and rank == ranks - 1 else 1) + (300 if number % EVERY == STEPS else 0)
            rows.append(Step(number, number * 1000 * MS, number * 1000 * MS + int(took * MS), 0, 0, 0, 0, 0, is_traced))
        found.append(LiveRank(rank, "h", tuple(rows), until + 1, MS))
    return found


@pytest.mark.parametrize(
    ("most", "slowed", "asked"),
    [
        pytest.param(None, 1.1, [], id="within what is usual"),
        pytest.param(None, 1.9, [1, 2], id="as usual: windows go on"),
        pytest.param(0.05, 1.1, [1, 2, 3], id="as asked for: they end"),
        pytest.param(0.05, 1.04, [], id="what is asked for is held"),
    ],
)
def test_a_dear_window_leaves_out_more(most: float | None, slowed: float, asked: list[int], tmp_path: Path) -> None:
    """Each that costs too much: one thing more."""
    cost, said = WindowCost(tmp_path, most), []
    for until in range(40, 400, 3):
        cost.look(ranks_at(until, slowed))
        if (tmp_path / CONTROL).exists():
            request = json.loads((tmp_path / CONTROL).read_text())
            said += [request] if request not in said else []
    assert [request["steps"] for request in said] == asked
    for before, request in enumerate(said):  # after the window that was too dear has ended, and before no rank's step
        assert request["action"] == "less" and request["first_step"] > 40 * (before + 1) + STEPS
        assert request["reason"].startswith(f"steps in a window took {100 * (slowed - 1):.0f} % longer")
