"""The unprofiled step: what is left out of it, and what its timers say."""

from pathlib import Path

import pytest
from step_timers import loaded, priced

from ddprof.analyzers.job.whole_run.unprofiled_steps import growth_note, typical_steps, unprofiled_step_us


def test_the_unprofiled_step_leaves_warm_up_export_and_odd_blocks_out(tmp_path: Path) -> None:
    run = loaded(tmp_path)
    assert unprofiled_step_us(run.job) is None  # nothing was timed
    assert priced(run, [20_000.0] * 7).unprofiled is None  # too few to say
    bare = priced(run, [18_000.0, 22_000.0] * 6)
    assert bare.unprofiled is not None and bare.unprofiled.step_us == pytest.approx(20_000.0)
    # Of eight blocks of four the two shortest and the two longest go; a pause every fourth step counts in part.
    calm = [20_000.0, 20_000.0, 20_000.0, 28_000.0]
    blocks = [[us / 2 for us in calm]] * 2 + [calm] * 4 + [[us * 3 for us in calm]] * 2
    lengths_us = [us for block in (blocks[i] for i in (2, 0, 6, 3, 1, 4, 7, 5)) for us in block]
    prices = priced(run, lengths_us)
    assert prices.unprofiled is not None and prices.unprofiled.step_us == pytest.approx(22_000.0)
    assert len(typical_steps(prices.graph.ranks[0].facts)) == 16


@pytest.mark.parametrize(
    ("lengths_us", "said"),
    [
        ([20_000.0 + 400.0 * step + 900.0 * (step % 3) for step in range(60)], "from 21.9 ms to 43.5 ms in 60 steps"),
        ([20_000.0 + 50.0 * step for step in range(60)], ""),  # less than a fifth
        ([20_000.0 + 9_000.0 * (step // 6 % 2) for step in range(60)], ""),  # longer in turn
        ([40_000.0 - 400.0 * step for step in range(60)], ""),
        ([20_000.0] * 7, ""),
    ],
)
def test_steps_that_get_longer_over_the_run_are_said(tmp_path: Path, lengths_us: list[float], said: str) -> None:
    facts = priced(loaded(tmp_path), lengths_us).graph.ranks[0].facts
    notes = growth_note([facts])
    assert [note.issue.partition("run: ")[2] for note in notes] == [said] * bool(said)
