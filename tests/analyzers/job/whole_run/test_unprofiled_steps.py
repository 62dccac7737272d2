"""The unprofiled step: what is left out of it, and what its timers say."""

from pathlib import Path

import pytest
from step_timers import loaded, priced

from ddprof.analyzers.job.whole_run.unprofiled_steps import typical_steps, unprofiled_step_us


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
