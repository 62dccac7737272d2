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


def thinking(steps: tuple[int, ...], us: float = HELD_US, times: int = 1) -> Chore:
    """A forward pass that runs Python between two operators in some steps."""
    numbers = count()

    def forward(script: Script) -> None:
        number = next(numbers)
        for _ in range(times):  # micro-batches of a step
            forward_once(script, number)

    def forward_once(script: Script, number: int) -> None:
        with script.frame(FORWARD), script.frame("model.py(7): forward"):
            script.host("aten::linear", 1_000.0)
            with script.frame("model.py(30): tally"):
                script.idle(us if number in steps else 20.0)
            for _ in range(4):  # called one after the other at once, as most are
                script.host("aten::relu", 250.0)
                script.idle(10.0)

    return forward


@pytest.mark.parametrize(
    ("steps", "us", "times", "held"),
    [
        ((0, 1, 2, 3), HELD_US, 1, True),
        ((0, 1, 2), HELD_US, 1, True),
        ((1, 3), HELD_US, 1, False),
        ((0, 1, 2, 3), 700.0, 1, False),
        ((0, 1, 2, 3), 700.0, 3, True),
    ],
    ids=["each step", "most", "half", "short", "short, in each micro-batch"],
)
def test_what_holds_one_place_of_most_steps(
    tmp_path: Path, steps: tuple[int, ...], us: float, times: int, held: bool
) -> None:
    facts = sampled(cpu_loop(tmp_path, before=thinking(steps, us, times)), {"main": 1_000})
    found = intervals.length(held_again(facts)) / 1e3
    assert found == (pytest.approx(len(steps) * us * times, rel=0.02) if held else 0.0)
    lines = lines_of(facts, script_time(facts).stack_ns)
    assert bool(lines) == held
    if held:
        assert lines[0].words == "model.py:30 tally()"
        assert lines[0].time_ns / 1e3 == pytest.approx(len(steps) * us * times, rel=0.02)
