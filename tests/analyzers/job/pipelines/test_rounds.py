"""Microbatches and chunks by what stages and messages agree on; where they do not, nothing is concluded."""

import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ddprof.analyzers.job.pipelines.messages import confirmed
from ddprof.analyzers.job.pipelines.passes import NO_PASSES, Passes
from ddprof.analyzers.job.pipelines.rounds import Rounds, Seen, count_rounds
from ddprof.sidecar import PipelineSettings

STEPS = 4


def passes(forward: int, backward: bool = True) -> Passes:
    step = np.repeat(np.arange(STEPS), forward * (1 + backward))
    is_forward = np.arange(len(step)) % 2 == 0 if backward else np.ones(len(step), bool)
    return Passes(step, is_forward, np.ones(len(step), np.int64), backward)


def seen(depth: int, microbatches: int, chunks: int = 1, lost: float = 0.0, tensors: int = 1, **more: Any) -> Seen:
    """A pipeline that trains, whose messages (`lost` of them at random) and passes were recorded."""
    draw = np.random.default_rng(3)

    def ends(a: int, b: int, count: int) -> dict[int, Any]:
        return {p: draw.binomial(count * tensors, 1 - lost, STEPS) for p in (a, b)}

    links: dict[tuple[int, int], Any] = {}
    wrap = (chunks - 1) * microbatches
    for a, b in itertools.pairwise(range(depth)):
        count = chunks * microbatches + (wrap if depth == 2 else 0)
        links |= {(a, b): ends(a, b, count), (b, a): ends(a, b, count)}
    if depth > 2 and wrap:
        links |= {(depth - 1, 0): ends(0, depth - 1, wrap), (0, depth - 1): ends(0, depth - 1, wrap)}
    known = {p: passes(chunks * microbatches) for p in range(depth)}
    return Seen([list(range(depth))], links, {**known, **more.get("passes", {})})


def ranks(count: int, *stated: PipelineSettings | None) -> Any:
    return [SimpleNamespace(sidecar=SimpleNamespace(pipeline=stated[p] if stated else None)) for p in range(count)]


@pytest.mark.parametrize("depth", [2, 3, 4, 8])
@pytest.mark.parametrize(("microbatches", "chunks"), [(8, 1), (12, 1), (8, 2), (8, 3), (16, 4)])
@pytest.mark.parametrize("lost", [0.0, 0.03])
def test_chunks_are_told_from_microbatches(depth: int, microbatches: int, chunks: int, lost: float) -> None:
    assert count_rounds(seen(depth, microbatches, chunks, lost), ranks(depth)) == Rounds(microbatches, chunks)


def test_several_tensors_per_pass_are_no_microbatches_and_forward_passes_alone_are_counted_too() -> None:
    for depth in (2, 4):
        assert count_rounds(seen(depth, 6, tensors=2), ranks(depth)) == Rounds(6, 1)
    alone = seen(3, 5, passes={p: passes(5, backward=False) for p in range(3)})
    links = {link: ends for link, ends in alone.links.items() if link[0] < link[1]}
    assert count_rounds(Seen(alone.chains, links, alone.passes), ranks(3)) == Rounds(5, 1)


def test_without_passes_messages_or_the_schedule_must_agree() -> None:
    nothing = dict.fromkeys(range(4), NO_PASSES)
    assert count_rounds(seen(4, 8, 2, passes=nothing), ranks(4)) == Rounds(8, 2)
    unsure = count_rounds(seen(4, 48, 1, 0.2, passes=nothing), ranks(4)).unsure
    assert "records are missing" in unsure and "0 forward passes" in unsure
    assert "6 to 8 forward passes" in count_rounds(seen(3, 8, lost=0.3, passes={1: passes(6)}), ranks(3)).unsure
    said = PipelineSettings("ScheduleInterleaved1F1B", (0, 2), 4, 6)
    nothing = dict.fromkeys(range(2), NO_PASSES)
    assert count_rounds(seen(2, 18, passes=nothing), ranks(2, said, said)) == Rounds(6, 2)
    assert count_rounds(seen(2, 18, passes=nothing), ranks(2, said, None)) == Rounds(18, 1)
    links = {(0, 1): {0: np.array([8, 7]), 1: np.array([6, 8])}}
    assert confirmed(links, [(0, 1)]) == (6, 8, True)
    assert confirmed({(0, 1): {0: np.array([8]), 1: np.array([6])}}, [(0, 1)]) == (6, 8, False)
    assert confirmed(links, [(1, 2)]) == (0, 0, False)
