"""Stages, microbatches and chunks follow from who sends messages to whom; where those disagree, none are concluded."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from corpus import WHOLE
from labelled_runs import Runs

from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.job.assemble import job_facts
from ddprof.analyzers.job.matching import Matched
from ddprof.analyzers.job.pipelines import stages
from ddprof.analyzers.job.pipelines.bubble import schedule_by_order
from ddprof.analyzers.job.pipelines.messages import NO_PASSES, Messages, Passes, confirmed, step_messages
from ddprof.analyzers.job.pipelines.stages import Rounds, Seen, _computes_alone, _goes_around, count_rounds
from ddprof.sidecar import PipelineSettings


def test_messages_join_two_stages_of_which_the_first_need_not_be_the_first_rank(labelled: Runs) -> None:
    job = labelled("clean.pp").job
    messages = np.flatnonzero(job.instances["is_message"])
    assert len(messages) and (job.instances["members"][messages] == 2).all()
    ranks = labelled("slow device in a pipeline").job.ranks
    last = len(ranks) - 1
    turned = job_facts([_numbered(facts, last) for facts in ranks]).pipeline
    assert turned is not None and turned.stages == tuple((p,) for p in range(last, -1, -1))
    found = job_facts(labelled("slow device in a pipeline").job.ranks[:3]).pipeline
    assert found is not None and "not traced" in found.unsure


@pytest.mark.parametrize("name", [name for name, s in WHOLE.items() if s.parallel.pp > 1])
def test_stages_microbatches_and_chunks_are_those_of_the_run(labelled: Runs, name: str) -> None:
    run, truth = labelled(name), labelled(name).label["pipeline"]
    found = run.job.pipeline
    assert found is not None
    assert [sorted(run.job.rank_ids[p] for p in stage) for stage in found.stages] == truth["stages"]
    assert (found.microbatches, found.interleave, found.unsure) == (truth["microbatches"], truth["chunks"], "")


def _numbered(facts: RankFacts, last: int) -> RankFacts:
    """The rank in a job that numbers its ranks from the other end."""
    groups = tuple(replace(g, ranks=tuple(last - r for r in g.ranks)) for g in facts.process_groups)
    identity = replace(facts.identity, rank=last - (facts.identity.rank or 0))
    messages = facts.messages.replace(peer=last - facts.messages["peer"])
    return replace(facts, identity=identity, process_groups=groups, messages=messages)


def test_ranks_that_send_and_receive_at_once_or_pass_around_are_no_pipeline(labelled: Runs) -> None:
    ranks = []
    for facts in labelled("clean.pp").job.ranks:
        both = facts.messages.replace(is_send=~facts.messages["is_send"].astype(bool))
        rows = np.repeat(np.arange(len(both)), 2)
        ways = np.where(np.arange(len(rows)) % 2, both["is_send"][rows], facts.messages["is_send"][rows])
        ranks.append(replace(facts, messages=facts.messages.take(rows).replace(is_send=ways)))
    assert job_facts(ranks).pipeline is None

    def links(around: int) -> dict[tuple[int, int], dict[int, np.ndarray]]:
        pairs = {(0, 1): 12, (1, 2): 12, (2, 0): around}
        return {(a, b): {a: np.full(3, n), b: np.full(3, n)} for (a, b), n in pairs.items()}

    assert _goes_around([0, 1, 2], links(12))
    assert not _goes_around([0, 1, 2], links(6))  # two chunks per stage
    assert not _goes_around([0, 1], links(0) | {(1, 0): {0: np.full(3, 12)}})


def test_ranks_that_send_before_they_receive_exchange_tokens(labelled: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    def sends_first(ranks: Sequence[RankFacts], matched: Matched) -> Messages:
        found = step_messages(ranks, matched)
        return replace(found, when_ns=found.when_ns + np.where(found.sends, -(10**12), 10**12))

    ranks = labelled("clean.pp").job.ranks
    monkeypatch.setattr(stages, "step_messages", sends_first)
    assert job_facts(ranks).pipeline is None


STEPS = 4


def passes(forward: int, backward: bool = True) -> Passes:
    step = np.repeat(np.arange(STEPS), forward * (1 + backward))
    is_forward = np.arange(len(step)) % 2 == 0 if backward else np.ones(len(step), bool)
    return Passes(step, is_forward, np.ones(len(step), np.int64), backward)


@pytest.mark.parametrize(
    ("name", "chunks", "orders"),
    [
        ("ScheduleGPipe", 1, "FFFFBBBB FFFFBBBB"),
        ("Schedule1F1B", 1, "FFFBFBBB FFBFBFBB FBFBFBFB"),
        ("ScheduleLoopedBFS", 2, "FFFFFFFFBBBBBBBB FFFFFFFFBBBBBBBB"),
        ("ScheduleInterleaved1F1B", 2, "FFFFFBFBFBFBBBBB FFFBFBFBFBFBFBBB"),
        ("zero bubble", 2, "FFFFBBFBBFBFBFBBBBBB FFFBFBBFBBFBBFBBFBBBB"),  # torch's interleaved one
        ("", 1, "FFFBBFBB FFBBFFBB"),
        ("", 1, "FFFBBBB FFFFBBBB"),
    ],
)
def test_the_order_of_passes_names_the_schedule(name: str, chunks: int, orders: str) -> None:
    """Four microbatches, as torch and Megatron-core run them; any other order has no name."""
    assert schedule_by_order([np.array([*order]) == "F" for order in orders.split()], 4, chunks) == name
    assert schedule_by_order([np.array([True, False])] * 2, 1, 1) == ""


def test_ranks_that_send_only_between_their_updates_exchange_gradients() -> None:
    first, last = np.arange(8), replace(passes(1), after=np.repeat([0, 2, 4, 6], 2))
    assert _computes_alone([last, last, NO_PASSES])  # a server that does not train
    assert not _computes_alone([replace(passes(1), after=first), last])
    assert not _computes_alone([NO_PASSES, replace(passes(1, backward=False), after=first[:STEPS])])


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
