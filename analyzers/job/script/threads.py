"""Threads of the script that compute beside the training thread: in Python, the two take turns on one interpreter."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.script.occupants import queue_frames, takes_from_queue
from ddprof.analyzers.facts.script.tree import CallTree, call_tree
from ddprof.derived_once import remembered
from ddprof.tables import Array, Table

_QUEUES = re.compile(r"^(?:queue|multiprocessing/queues)\.py ")  # waiting for room, or for the next item


@dataclass(frozen=True)
class BusyThread:
    """A thread's most frequent line of the script, and its share of the traced time on a CPU."""

    line: str
    share: float


@remembered
def busy_threads(facts: RankFacts) -> list[BusyThread]:
    """The threads of one rank whose lines are known, busiest first."""
    windows = facts.sidecar.cpu_waits.windows
    lasted_ns = sum(window.dur_ns for window in windows)
    cpu_ns: dict[str, int] = {}
    for window in windows:
        for thread in window.beside:
            cpu_ns[thread.name] = cpu_ns.get(thread.name, 0) + thread.cpu_ns
    totals = facts.script_totals
    lines = {name: _most_seen(call_tree(facts), totals.take(totals["thread"] == name)) for name in cpu_ns}
    threads = [BusyThread(line, cpu_ns[name] / lasted_ns) for name, line in lines.items() if line and lasted_ns]
    return sorted(threads, key=lambda thread: -thread.share)


def takes_batches(facts: RankFacts, tree: CallTree) -> Array:
    """Mask of stacks in which the training thread takes batches from a queue that a thread, or a process, of the script
    fills, where that is most of its loading; shape (stacks,)."""
    spans, words = facts.spans_of("dataloader"), set(queue_frames(tree))
    length = spans["end_ns"] - spans["start_ns"]
    taken = np.array([facts.strings[name] in words for name in spans["name"].tolist()], bool)
    is_most = length[taken].sum() > length.sum() / 2
    return np.asarray(takes_from_queue(tree) & is_most)


def making_line(facts: RankFacts) -> str | None:
    """The line in which the script's thread that makes these batches was sampled most; "" where none was seen, None
    where batches come otherwise."""
    tree, totals = call_tree(facts), facts.script_totals
    if not takes_batches(facts, tree).any():
        return None
    beside = (totals["thread"] != "") & ~tree.within(tree.matching(_QUEUES))[totals["stack"]]
    return _most_seen(tree, totals.take(beside)) or ""


def threads_alone(ranks: Sequence[RankFacts]) -> dict[int, BusyThread]:
    """The busiest thread, by position, of each rank that runs one in a line that is missing on most peers."""
    threads = [busy_threads(facts) for facts in ranks]
    having = Counter(line for of_rank in threads for line in {thread.line for thread in of_rank})
    alone = {
        p: [thread for thread in of_rank if having[thread.line] <= len(ranks) / 2] for p, of_rank in enumerate(threads)
    }
    return {position: of_rank[0] for position, of_rank in alone.items() if of_rank}


def _most_seen(tree: CallTree, totals: Table) -> str | None:
    """The user's line with most of the time of SCRIPT_TOTALS; None without one."""
    if not len(totals):
        return None
    user = tree.folded[totals["stack"]]
    seen = np.bincount(tree.frame[np.maximum(user, 0)], weights=totals["time_ns"] * (user >= 0))
    return tree.words(int(np.argmax(seen))) if seen.any() else None
