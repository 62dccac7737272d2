"""Input of ranks: bytes copied to their devices where the capture counted no elements."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from captured import counted
from gloo_traces import TENSOR, Events, annotation, in_steps, operator, transfer
from kineto_run import Script
from msgspec import structs

from ddprof.analyzers.engine import LoadedRun
from ddprof.analyzers.facts.model import HOST_OPERATORS, RankFacts
from ddprof.analyzers.job import input_size
from ddprof.sidecar import ModelParameters

STEPS, PASS_US, UPDATE_US = 5, 20_000.0, 2_000.0


def rank(folder: Path, number: int, size_bytes: int) -> RankFacts:
    script = Script()
    for _ in script.steps(3):
        if size_bytes:
            script.copy(size_bytes)
        script.launch()
    return script.facts(folder, number, 3)


@pytest.mark.parametrize(
    ("sizes", "slower", "ratio", "is_more"),
    [
        ((1_000, 1_500, 1_000), (1.0, 1.5, 1.3), [1.0, 1.5, 1.0], [False, True, False]),
        ((1_000, 1_050, 1_000), (1.0, 1.5, 1.0), [1.0, 1.05, 1.0], [False] * 3),  # a little explains little
        ((1_000, 0), (1.0, 2.0), [np.nan] * 2, [False] * 2),  # nothing was copied, nothing is known
    ],
)
def test_a_larger_batch_explains_longer_work(
    tmp_path: Path, sizes: tuple[int, ...], slower: tuple[float, ...], ratio: list[float], is_more: list[bool]
) -> None:
    ranks = [rank(tmp_path, n, size) for n, size in enumerate(sizes)]
    assert input_size.fed_ratio(ranks) == pytest.approx(ratio, nan_ok=True)
    assert input_size.is_fed_more(ranks, np.array(slower)).tolist() == is_more


def computing(facts: RankFacts, lengths: list[int], calls: int = 1, alone: int = 0) -> RankFacts:
    """The rank with operators on samples of these lengths, one of each step, on weights, and some of its own."""
    first = len(facts.strings)
    shapes = [f"[[8, {length}], [8, 64]]" for length in lengths]
    start = [int(ns) + 10 for ns in facts.steps["start_ns"][: len(lengths)]]
    rows = [(ns, first, first + 2 + at) for at, ns in enumerate(start) for _ in range(calls)]
    rows += [(ns + 1, first + kind, first + 1) for ns in start for kind in (1, *[-1] * alone)]
    columns = dict(zip(("start_ns", "name", "shape"), map(list, zip(*rows, strict=True)), strict=True))
    table = HOST_OPERATORS.table({**columns, "dur_ns": [5] * len(rows)})
    return replace(facts, strings=(*facts.strings, "aten::linear", "[[64, 64]]", *shapes), host_operators=table)


def test_longer_samples_are_seen_in_the_shapes_of_equal_operators(tmp_path: Path) -> None:
    plain = [rank(tmp_path, n, 0) for n in range(2)]
    ranks = [computing(plain[0], [100, 120, 110]), computing(plain[1], [220, 260, 240], alone=1)]
    assert input_size.fed_ratio(ranks) == pytest.approx([1.0, 720 / 330])  # the weights are the same on both
    assert input_size.fed_more_each_step(ranks, 0.3).tolist() == [False, True]
    assert input_size.fed_ratio([computing(plain[0], [32] * 3), computing(plain[1], [64] * 3)]) == pytest.approx([1, 2])
    assert not input_size.fed_more_each_step([ranks[0], computing(plain[1], [220, 90, 240])], 0.3).any()
    for calls, alone in ((2, 0), (1, 3)):
        ranks = [computing(plain[0], [100, 120, 110]), computing(plain[1], [220, 260, 240], calls, alone)]
        assert np.isnan(input_size.fed_ratio(ranks)).all() and not input_size.fed_more_each_step(ranks, 0.3).any()


def test_larger_batches_are_told_by_their_samples_and_longer_ones_by_their_elements(tmp_path: Path) -> None:
    plain = [rank(tmp_path, n, 1_000) for n in range(3)]
    assert input_size.larger_input(plain, 1) is None
    more = [counted(facts, samples, 10 * samples) for facts, samples in zip(plain, (64, 128, 64), strict=True)]
    assert input_size.larger_input(more, 1) == ("samples", "batches of 128 samples against 64")
    longer = [counted(facts, 64, elements) for facts, elements in zip(plain, (640, 1_280, 640), strict=True)]
    assert input_size.larger_input(longer, 1) == ("elements", "batches of 2.00x the elements")
    ranks = [computing(facts, [length] * 3) for facts, length in zip(plain, (100, 220, 100), strict=True)]
    assert input_size.larger_input(ranks, 1) == ("operands", "its operators work on 2.20x the elements")
    held = [ModelParameters(count) for count in (1_000, 2_000, 1_000)]
    ranks = [
        replace(facts, sidecar=structs.replace(facts.sidecar, parameters=each))
        for facts, each in zip(ranks, held, strict=True)
    ]
    assert input_size.larger_input(ranks, 1) == ("parameters", "its model has 2.00x the parameters")


def two_ranks(folder: Path, passes: float, update: float, shapes: bool = False) -> LoadedRun:
    """Rank 1 takes so many times as long for its passes and for its optimizer."""
    given = TENSOR if shapes else {}

    def play(rank: int, began: float) -> Events:
        pass_us, update_us = PASS_US * (passes if rank else 1.0), UPDATE_US * (update if rank else 1.0)
        called, met = began + 100 + pass_us, began + 200 + PASS_US * max(passes, 1.0) + 500
        return [
            operator(rank, "aten::linear", began + 50, pass_us, **given),
            operator(rank, "c10d::allreduce_", called, 50, **TENSOR),
            transfer(rank, "gloo:all_reduce", called + 10, met - called - 10, **TENSOR),
            annotation(rank, "Optimizer.step#SGD.step", met + 20, update_us + 40),
            operator(rank, "aten::_foreach_add_", met + 40, update_us, **given),
        ]

    return in_steps(folder, STEPS, (PASS_US + UPDATE_US) * max(passes, update) + 2_000.0, play)


@pytest.mark.parametrize(("update", "identifier"), [(1.0, "straggler.imbalance"), (1.8, "straggler.compute")])
def test_a_larger_batch_spares_the_optimizer(tmp_path: Path, update: float, identifier: str) -> None:
    run = two_ranks(tmp_path / "run", 1.8, update)
    assert input_size.passes_over_optimizer(run.job.ranks) == pytest.approx([1.0, 1.8 / update], rel=0.02)
    assert input_size.is_fed_more(run.job.ranks, run.measures.work.factor).tolist() == [False, update == 1.0]
    found = run.report.ranked_findings()[0]
    assert (found.id, found.ranks) == (identifier, (1,))
    assert not any("nvidia" in (fix.patch or "") for fix in found.fixes)


def test_shapes_tell_it_better_and_a_short_optimizer_tells_nothing(tmp_path: Path) -> None:
    assert input_size.passes_over_optimizer(two_ranks(tmp_path / "shapes", 1.8, 1.0, shapes=True).job.ranks) is None
    ranks = two_ranks(tmp_path / "none", 1.8, 1.0).job.ranks
    assert input_size.passes_over_optimizer([replace(facts, phases=facts.phases.take([])) for facts in ranks]) is None
    assert input_size.passes_over_optimizer(ranks[:1]) is None


def test_waits_for_a_cpu_hide_no_larger_batch(tmp_path: Path) -> None:
    """Rank 0 waits for a CPU in one operator of each step, for as long as rank 1 computes on twice as many rows."""

    def play(rank: int, began: float) -> Events:
        lengths_us = [1_000.0] * 10 if rank else [500.0] * 9 + [5_500.0]
        ends_us = began + 100 + np.cumsum(lengths_us)
        shapes = {"Input Dims": [[64 * (1 + rank), 8]], "Input type": ["float"]}
        met = transfer(rank, "gloo:all_reduce", began + 10_200, 500, **TENSOR)
        called = operator(rank, "c10d::allreduce_", began + 10_150, 50, **TENSOR)
        each = zip(ends_us.tolist(), lengths_us, strict=True)
        return [*(operator(rank, "aten::linear", end - us, us - 1, **shapes) for end, us in each), called, met]

    run = in_steps(tmp_path / "run", STEPS, 11_000.0, play)
    assert input_size.fed_more_us(run.job.ranks, run.measures.step_us) == pytest.approx([0.0, 5_000.0], rel=0.02)
    found = run.report.ranked_findings()[0]
    assert (found.id, found.ranks) == ("straggler.imbalance", (1,)) and "2.00x the work" in found.summary
