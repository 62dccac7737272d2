"""A slow device is told from a stage with more or other work by what the same kernels take."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from labelled_runs import Runs

from ddprof.analyzers.facts.model import NO_STRING, RankFacts
from ddprof.analyzers.facts.names import is_gemm
from ddprof.analyzers.job.model import Pipeline
from ddprof.analyzers.job.pipelines.bubble import MIN_EXCESS, stage_pace

pace = partial(stage_pace, pipeline=Pipeline(((0,), (1,)), 16))


def slower(facts: RankFacts, factor: Callable[[str], float], shapes: bool = False) -> RankFacts:
    ops = facts.device_ops
    by_name = np.array([factor(name) for name in facts.strings])
    took = (ops["end_ns"] - ops["start_ns"]) * np.where(ops["comm"] < 0, by_name[ops["name"]], 1.0)
    shape = np.full(len(ops), len(facts.strings) if shapes else NO_STRING)
    facts = replace(facts, strings=(*facts.strings, "[[8, 8]]"))
    return replace(facts, device_ops=ops.replace(end_ns=ops["start_ns"] + took.astype(np.int64), shape=shape))


def test_all_kernels_alike_are_a_slow_device_and_more_layers_are_none(labelled: Runs) -> None:
    job = labelled("pipeline.imbalance").job
    found = stage_pace(job.ranks, job.pipeline)
    assert found.factor.tolist() == [1.0, 1.0] and (found.coverage > 0.4).all()
    assert np.isnan(stage_pace(labelled("clean.pp").job.ranks, None).factor).all()
    first, second = labelled("clean.pp").job.ranks
    found = pace([first, slower(second, lambda name: 1.4)])
    assert found.factor == pytest.approx([1.0, 1.4], abs=0.01) and found.per_step[1] == pytest.approx(1.4, abs=0.05)
    assert pace([first, slower(second, lambda name: 1 + 0.8 * MIN_EXCESS)]).factor.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    "factor",
    [
        lambda name: 1.2 + 0.3 * (len(name) % 5),
        lambda name: 1.96 if is_gemm([name])[0] else 1.4,  # layers 1.4 times as wide: matrix products take its square
    ],
)
def test_kernels_that_differ_by_other_factors_do_other_work(labelled: Runs, factor: Callable[[str], float]) -> None:
    first, second = labelled("clean.pp").job.ranks
    assert np.isnan(pace([first, slower(second, factor)]).factor[1])


def test_shapes_say_that_the_work_is_the_same_and_smaller_layers_make_no_stage_slow(labelled: Runs) -> None:
    def short_of_power(name: str) -> float:
        return 1.4 if "gemm" in name or "fmha" in name or "flash" in name else 1.0

    first, second = (slower(facts, lambda name: 1.0, shapes=True) for facts in labelled("clean.pp").job.ranks)
    found = pace([first, slower(second, short_of_power, shapes=True)])
    assert found.factor == pytest.approx([1.0, 1.4], abs=0.04)
    unknown = [slower(facts, lambda name: 1.0) for facts in (first, second)]
    assert np.isnan(pace([unknown[0], slower(second, short_of_power)]).factor[1])
    # Half of the launches of each kernel take 0.7 of the time: the other stage is 1.4 times as slow as these alone.
    ops = second.device_ops
    order = np.lexsort((ops["start_ns"], ops["name"]))
    share = np.where((np.argsort(order) % 2 == 0) & (ops["comm"] < 0), 0.7, 1.0)
    took = ((ops["end_ns"] - ops["start_ns"]) * share).astype(np.int64)
    found = pace([first, replace(second, device_ops=ops.replace(end_ns=ops["start_ns"] + took))])
    assert np.isnan(found.factor[0]) and not found.factor[1] > 1
