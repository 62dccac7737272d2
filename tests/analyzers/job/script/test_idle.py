"""Python that holds one place inside a phase of most steps is the script's; what stops a thread anywhere is not."""

from itertools import count
from pathlib import Path

import pytest
from cpu_loop import FORWARD, Chore, cpu_loop, sampled
from kineto_run import Script

from ddprof import intervals
from ddprof.analyzers.job.script.idle import held_again, script_time
from ddprof.analyzers.job.script.lines import lines_of

HELD_US = 5_000.0


def thinking(steps: tuple[int, ...], us: float = HELD_US) -> Chore:
    """A forward pass that runs Python between two operators in some steps."""
    numbers = count()

    def forward(script: Script) -> None:
        number = next(numbers)
        with script.frame(FORWARD), script.frame("model.py(7): forward"):
            script.host("aten::linear", 1_000.0)
            with script.frame("model.py(30): tally"):
                script.idle(us if number in steps else 20.0)
            script.host("aten::relu", 1_000.0)

    return forward


@pytest.mark.parametrize(
    ("steps", "us", "held"),
    [((0, 1, 2, 3), HELD_US, True), ((0, 1, 2), HELD_US, True), ((1, 3), HELD_US, False), ((0, 1, 2, 3), 300.0, False)],
    ids=["each step", "most", "half", "short"],
)
def test_what_holds_one_place_of_most_steps(tmp_path: Path, steps: tuple[int, ...], us: float, held: bool) -> None:
    facts = sampled(cpu_loop(tmp_path, before=thinking(steps, us)), {"main": 1_000})
    found = intervals.length(held_again(facts)) / 1e3
    assert found == (pytest.approx(len(steps) * us, rel=0.02) if held else 0.0)
    lines = lines_of(facts, script_time(facts).stack_ns)
    assert bool(lines) == held
    if held:
        assert lines[0].words == "model.py:30 tally()"
        assert lines[0].time_ns / 1e3 == pytest.approx(len(steps) * us, rel=0.02)
