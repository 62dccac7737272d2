"""A slow device is measured, and nobody else."""

from dataclasses import replace

import numpy as np
import pytest
from labelled_runs import Runs

from ddprof.analyzers.facts.model import NO_STRING, Work
from ddprof.analyzers.facts.work import company, step_of_launch
from ddprof.analyzers.job.slowdown import compute_slowdown, interference


def test_slowdown_is_of_the_slow_device_alone_and_of_equal_work(labelled: Runs) -> None:
    factor = labelled("straggler.compute").measures.compute.factor
    typical = float(np.median(factor))
    assert factor[2] / typical == pytest.approx(1.3, abs=0.03)
    assert np.abs(np.delete(factor, 2) / typical - 1).max() < 0.02
    # More tokens for the experts of a rank: equally many launches, of other shapes.
    assert labelled("hot expert, with shapes").measures.compute.more_work.max() == 0.0
    timeless = []
    for facts in labelled("straggler.compute").job.ranks:
        ops, (_, beside) = facts.device_ops, company(facts)
        timeless.append(replace(facts, device_ops=ops.replace(end_ns=np.where(beside, ops["end_ns"], ops["start_ns"]))))
    assert interference(timeless) == 0.0


def test_of_a_rank_with_more_steps_the_common_ones_are_compared(labelled: Runs) -> None:
    _, *others = labelled("straggler.compute").job.ranks
    short = compute_slowdown([replace(facts, steps=facts.steps.take(slice(0, 1))) for facts in others], None)
    of_both = compute_slowdown([*others[:-1], replace(others[-1], steps=others[-1].steps.take(slice(0, 1)))], None)
    assert of_both.coverage == pytest.approx(short.coverage)


def test_batches_that_grow_on_all_ranks_hide_no_slow_device(labelled: Runs) -> None:
    """Without shapes a longer batch is the same kernels taking longer, on all ranks of the step alike."""
    ranks = []
    for facts in labelled("straggler.compute").job.ranks:
        ops = facts.device_ops
        longer = 1.0 + 0.4 * np.maximum(0, step_of_launch(facts)) * (ops["work"] == Work.COMPUTE)
        length = ((ops["end_ns"] - ops["start_ns"]) * longer).astype(np.int64)
        unshaped = np.full(len(ops), NO_STRING)
        ranks.append(replace(facts, device_ops=ops.replace(end_ns=ops["start_ns"] + length, shape=unshaped)))
    found = compute_slowdown(ranks, None)
    typical = float(np.median(found.factor))
    assert found.factor[2] / typical == pytest.approx(1.3, abs=0.05)
    assert np.abs(np.delete(found.per_step, 2, axis=0) / typical - 1).max() < 0.1
