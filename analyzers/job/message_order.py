"""Numbers of the messages between two ranks in the order of the whole recording, where their steps begin apart.

A stage of a pipeline written by hand receives before its first forward pass, with which its step begins: its first
message lies in the step before, or before the window. The messages of a pair arrive in the order in which they are
sent, and none before it is sent; of the shifts that allow it the one with the shortest way is the true one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.stepping.steps import RESOLUTION_NS
from ddprof.tables import Array

FEWEST = 3  # messages that both ends recorded
NEARLY = 0.9  # of these arrive after they were sent: an event may be lost
ENOUGH = 0.5  # of the shorter side: at larger shifts most of it has no other end


def numbers_in_order(ranks: Sequence[RankFacts], messages: dict[str, Array], pair: Array, ordinal: Array) -> Array:
    """The `ordinal` of each message of its pair and side, of receivers shifted to the send that it belongs to.

    `messages`: rows in call order per rank; `pair`: equal for rows with the same two ends, group and tag.
    """
    numbers = ordinal.copy()
    start, end = (_times(ranks, messages, name) for name in ("start_ns", "end_ns"))
    is_kept = ~messages["lost"].astype(bool)
    is_send = messages["side"] == 1
    for each in np.unique(pair):
        sent, received = (np.flatnonzero((pair == each) & side) for side in (is_send, ~is_send))
        if len(sent) and len(received):
            shift = _shift(start[sent], end[received], is_kept[sent], is_kept[received])
            numbers[received] += shift
    return numbers


def _times(ranks: Sequence[RankFacts], messages: dict[str, Array], name: str) -> Array:
    times = np.zeros(len(messages["rank"]), np.int64)
    for position, facts in enumerate(ranks):
        of_rank = messages["rank"] == position
        times[of_rank] = facts.comms[name][messages["comm"][of_rank]]
    return times


def _shift(sent_ns: Array, received_ns: Array, is_sent: Array, is_received: Array) -> int:
    """Number of sends before the one that the first receive belongs to; 0 where no shift is possible."""
    least = max(FEWEST, int(ENOUGH * min(len(sent_ns), len(received_ns))))
    for shift in range(len(sent_ns) - least, least - len(received_ns) - 1, -1):
        first, last = max(0, -shift), min(len(received_ns), len(sent_ns) - shift)
        here, there = slice(first, last), slice(first + shift, last + shift)
        both = is_received[here] & is_sent[there]
        if both.sum() >= FEWEST and (received_ns[here] + RESOLUTION_NS >= sent_ns[there])[both].mean() >= NEARLY:
            return shift
    return 0
