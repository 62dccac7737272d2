"""Streams of two ranks are one channel if they carry the same, in whatever order their files name them."""

from dataclasses import replace

import numpy as np
from labelled_runs import Runs

from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.job.groups.channels import nameless_groups


def swapped(facts: RankFacts) -> RankFacts:
    """The rank as its file would be had its window opened while the other stream was busy."""
    track = facts.comms["track"]
    low, high = np.unique(track).tolist()
    return replace(facts, comms=facts.comms.replace(track=np.where(track == low, high, low)))


def test_groups_do_not_depend_on_which_stream_came_first(labelled: Runs) -> None:
    ranks = labelled("mesh without arguments").job.ranks
    usual = nameless_groups(ranks)
    assert sorted(set(usual.values())) == [(0, 1), (0, 2), (1, 3), (2, 3)]
    mixed = nameless_groups([swapped(facts) if p in (1, 2) else facts for p, facts in enumerate(ranks)])
    for position, facts in enumerate(ranks):
        tracks = np.unique(facts.comms["track"]).tolist()
        there = tracks[::-1] if position in (1, 2) else tracks
        assert [mixed[position, track] for track in there] == [usual[position, track] for track in tracks]
