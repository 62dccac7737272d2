"""Scaled parts of a host's time: what two scalings leave is their product, everywhere."""

import math
from pathlib import Path

import numpy as np
import pytest
from cpu_loop import cpu_loop
from hypothesis import given
from hypothesis import strategies as st
from kineto_run import Script
from labelled_runs import run_of

from ddprof import intervals
from ddprof.analyzers.replay.host_time import Scaled, by_level, on_top
from ddprof.findings import Change

END = 60
SPANS = st.lists(st.tuples(st.integers(0, END), st.integers(0, END)), max_size=4)
PARTS = st.lists(st.tuples(SPANS, st.sampled_from((0.0, 0.5, 2.0))), max_size=3)


def scaled(parts: list[tuple[list[tuple[int, int]], float]]) -> Scaled:
    spans = [np.array(spans, np.int64).reshape(-1, 2).T for spans, _ in parts]
    return tuple((intervals.union(*ends), share) for ends, (_, share) in zip(spans, parts, strict=True))


def share_at(parts: Scaled, at: int) -> float:
    return math.prod(share ** int(((start <= at) & (at < end)).sum()) for (start, end), share in parts)


@given(PARTS, PARTS)
def test_one_on_top_of_the_other_is_their_product(first: list, second: list) -> None:
    a, b = scaled(first), scaled(second)
    both = on_top(a, b)
    for at in range(END):
        # Shares are kept to four digits after each factor; the sixth may double what the fifth lost.
        assert share_at(both, at) == pytest.approx(share_at(a, at) * share_at(b, at), abs=2e-4)
    merged = intervals.union(*(np.concatenate([spans[side] for spans, _ in both] or [[]]) for side in (0, 1)))
    assert sum(intervals.length(spans) for spans, _ in both) == intervals.length(merged)  # disjoint


def test_pieces_of_about_one_factor_are_kept_together() -> None:
    spans = np.array([0, 10, 20, 30]), np.array([5, 15, 25, 35])
    (((start, _), factor),) = by_level(spans, np.array([1.0, 1.5, 1.501, 1.004]))
    assert start.tolist() == [10, 20] and factor == 1.5


def test_what_one_change_removes_is_not_there_for_another(tmp_path: Path) -> None:
    """A step of 28.5 ms, of which the script's own Python is 8."""

    def logs(script: Script) -> None:
        with script.frame("train.py(40): log_values"):
            script.idle(8_000.0)

    run = run_of([cpu_loop(tmp_path, before=logs)])
    changes = (Change("no_script", (), (0.0,)), Change("scale_compute", (), (2.0,)))
    assert run.pricer.step_us(changes) == pytest.approx((run.measures.step_us - 8_000.0) / 2, rel=0.02)
