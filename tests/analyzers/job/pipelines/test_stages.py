"""Stages and microbatches follow from who sends messages to whom."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from corpus import WHOLE
from labelled_runs import Runs

from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.job.assemble import job_facts
from ddprof.analyzers.job.matching import Matched
from ddprof.analyzers.job.pipelines import stages
from ddprof.analyzers.job.pipelines.messages import Messages, step_messages
from ddprof.analyzers.job.pipelines.stages import _goes_around


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


def test_ranks_of_which_both_send_before_they_receive_exchange_tokens(
    labelled: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sends_first(ranks: Sequence[RankFacts], matched: Matched) -> Messages:
        found = step_messages(ranks, matched)
        return replace(found, when_ns=found.when_ns + np.where(found.sends, -(10**12), 10**12))

    ranks = labelled("clean.pp").job.ranks
    monkeypatch.setattr(stages, "step_messages", sends_first)
    assert job_facts(ranks).pipeline is None
