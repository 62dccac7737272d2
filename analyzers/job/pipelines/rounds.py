"""Passes of a pipeline's stages per step: microbatches, and chunks of layers per stage.

A stage of v chunks passes forward v times per microbatch, and sends to the next stage as often. From the last stage
back to the first only the chunks but the last send: v - 1 times (Megatron-LM section 2.2). What the job's own schedule
states comes first, then passes that all stages count alike, then messages that several ends recorded alike. Where these
contradict one another nothing is concluded.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.job.pipelines.messages import Link, confirmed
from ddprof.analyzers.job.pipelines.passes import Passes
from ddprof.tables import Array

MOST_CHUNKS = 8  # per stage; schedules of more are not known
MOST_TENSORS = 4  # that a stage hands on per pass
LOST = 0.1  # of the messages of a step: buffers that overflow lose single records; what misses more is another schedule


@dataclass(frozen=True)
class Rounds:
    """Microbatches and chunks; `unsure`: why they are uncertain, "" where they are not."""

    microbatches: int
    chunks: int
    unsure: str = ""


@dataclass(frozen=True)
class Seen:
    """Observations of a pipeline. `chains`: positions of its stages in order, one chain per replica."""

    chains: Sequence[Sequence[int]]
    links: Mapping[Link, Mapping[int, Array]]
    passes: Mapping[int, Passes]  # by position

    @property
    def depth(self) -> int:
        """Number of stages."""
        return len(self.chains[0])

    def onward(self) -> list[Link]:
        """Links from each stage to the next."""
        return [link for chain in self.chains for link in itertools.pairwise(chain)]

    def back(self) -> list[Link]:
        """Links from each stage to the one before."""
        return [(b, a) for a, b in self.onward()]

    def around(self) -> list[Link]:
        """Links from the last stage to the first."""
        return [(chain[-1], chain[0]) for chain in self.chains]


def count_rounds(seen: Seen, ranks: Sequence[RankFacts]) -> Rounds:
    """Microbatches and chunks per step."""
    stated = _stated([ranks[p] for chain in seen.chains for p in chain])
    if stated is not None:
        return stated
    passed = _agreed_passes(seen)
    least, most, sure = confirmed(seen.links, seen.onward())
    around = confirmed(seen.links, seen.around())[1] if seen.depth > 2 else 0
    returned_least, returned, returned_sure = confirmed(seen.links, seen.back())
    if passed:
        chunks = _chunks(seen.depth, passed, most, around)
        if chunks and passed % chunks == 0:
            return Rounds(passed // chunks, chunks)
    elif sure and (returned_sure or not returned) and returned in (0, most):
        chunks = _chunks(seen.depth, 0, most, around)
        if chunks and most % chunks == 0:
            return Rounds(most // chunks, chunks)
    return Rounds(max(1, most - around), 1, _contradiction(seen, min(least, returned_least), max(most, returned)))


def _contradiction(seen: Seen, least: int, most: int) -> str:
    """The contradicting counts of messages and passes, in words."""
    counts = [p.per_step(True, 1) for p in seen.passes.values()]
    fewest, largest = min(int(c.min()) for c in counts), max(int(c.max()) for c in counts)
    messages, passes = _range(least, most), _range(fewest, largest)
    return f"the stages recorded {messages} messages and {passes} forward passes in a step: records are missing"


def _range(least: int, most: int) -> str:
    return f"{least} to {most}" if least < most else f"{most}"


def _stated(ranks: Sequence[RankFacts]) -> Rounds | None:
    """Rounds stated by the job's own schedule, where all stages agree; else None."""
    said = {s for facts in ranks if (s := facts.sidecar.pipeline) is not None}
    counts = {(s.microbatches or 0, len(s.stage_indices)) for s in said}
    if len(counts) != 1 or not all(facts.sidecar.pipeline for facts in ranks):
        return None
    microbatches, chunks = counts.pop()
    return Rounds(microbatches, max(1, chunks)) if microbatches > 0 else None


def _agreed_passes(seen: Seen) -> int:
    """Forward passes per step, where every stage has that number in most of its steps; else 0."""
    usual = set()
    for stage in zip(*seen.chains, strict=True):
        passes = [seen.passes[p] for p in stage]
        if not all(len(p.step) for p in passes) or (_returns(seen) and not all(p.knows_backward for p in passes)):
            return 0
        counts = np.concatenate([p.per_step(True, int(p.step.max()) + 1) for p in passes])
        values, times = np.unique(counts, return_counts=True)
        if 2 * times.max() <= len(counts):
            return 0
        usual.add(int(values[times.argmax()]))
    return usual.pop() if len(usual) == 1 else 0


def _returns(seen: Seen) -> bool:
    """True where messages go against the order of more than two stages, as gradients do."""
    onward, back = confirmed(seen.links, seen.onward())[1], confirmed(seen.links, seen.back())[1]
    return back > (1 - LOST) * onward / MOST_TENSORS


def _chunks(depth: int, passed: int, most: int, around: int) -> int:
    """Chunks per stage, from `most` messages to the next stage and `around` from the last to the first, per step, and
    `passed` forward passes (0: unknown); 0 where these contradict one another.

    Of two stages the next one is also the one before, so that messages of both ways add up: (2 v - 1) per microbatch.
    """
    if depth > 2:
        chunks = round(most / (most - around)) if most > around else 0
        per_pass = most / passed if passed else 1.0
        is_sure = chunks and (not around or abs(chunks - most / (most - around)) <= LOST * chunks)
        return chunks if is_sure and _is_whole(per_pass) else 0
    if not passed:
        return 1
    options = sorted(
        (tensors * (2 * chunks - 1) / chunks, chunks)
        for chunks in range(1, MOST_CHUNKS + 1)
        for tensors in range(1, MOST_TENSORS + 1)
    )
    ratio = most / passed
    return next((chunks for usual, chunks in options if (1 - LOST) * usual <= ratio <= usual), 0)


def _is_whole(ratio: float) -> bool:
    """True where a ratio, lost records aside, is that of a few whole tensors per pass."""
    whole = np.ceil(ratio - 1e-9)
    return bool(1 <= whole <= MOST_TENSORS and ratio >= (1 - LOST) * whole)
