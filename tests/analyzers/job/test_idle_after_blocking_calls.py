"""Idle time after blocking calls, with what the host issues late after them."""

from dataclasses import replace

import numpy as np
import pytest
from labelled_runs import Runs

from ddprof.analyzers.facts.model import GAPS, SILENCES, RankFacts
from ddprof.analyzers.job.idle_after_blocking_calls import idle_from_calls_us
from ddprof.causes import CAUSE_CODE

MS = 1_000_000


def with_gaps(facts: RankFacts, *pieces: tuple[float, float, str]) -> RankFacts:
    """A rank whose steps hold these idle pieces alone (ms after the first step begins, cause)."""
    origin = int(facts.steps["start_ns"][0])
    start, end, cause = zip(*pieces, strict=True)
    start_ns, end_ns = (np.array([origin + int(at * MS) for at in bound]) for bound in (start, end))
    codes, next_op = np.array([CAUSE_CODE[each] for each in cause]), np.zeros(len(pieces), np.int64)
    gaps = GAPS.table({"start_ns": start_ns, "end_ns": end_ns, "cause": codes, "next_op": next_op})
    return replace(facts, gaps=gaps, silences=SILENCES.empty())


def test_late_launches_count_where_a_call_began_the_stretch(labelled: Runs) -> None:
    facts = labelled("host.sync").job.ranks[0]
    steps = len(facts.steps)
    sync, launch, copy = "host_sync", "host_launch", "memcpy"
    after = with_gaps(facts, (1, 2, sync), (2, 4, launch), (6, 7, launch))
    assert idle_from_calls_us(after) == pytest.approx(3_000 / steps)
    origin = int(facts.steps["start_ns"][0])
    silent = SILENCES.table({"start_ns": [origin + 3 * MS], "end_ns": [origin + 500 * MS]})
    assert idle_from_calls_us(replace(after, silences=silent)) == pytest.approx(2_000 / steps)
    assert idle_from_calls_us(with_gaps(facts, (1, 2, launch), (2, 3, sync))) == pytest.approx(1_000 / steps)
    allocating = with_gaps(facts, (1, 2, sync), (2, 2.005, copy), (2.005, 3.005, "allocator"), (3.005, 4.005, launch))
    assert idle_from_calls_us(allocating) == pytest.approx(2_000 / steps)
    assert idle_from_calls_us(with_gaps(facts, (1, 2, launch))) == 0.0
