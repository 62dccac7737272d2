"""Threads of the script that compute beside the training thread: in Python, the two take turns on one interpreter."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.script.occupants import queue_frames, takes_from_queue
from ddprof.analyzers.facts.script.tree import CallTree, call_tree
from ddprof.derived_once import remembered
from ddprof.tables import Array, Table

_QUEUES = re.compile(r"^(?:queue|multiprocessing/queues)\.py ")  # waiting for room, or for the next item


class BusyThread(Struct, frozen=True):
    """A thread's most frequent line of the script, its share of the traced time on a CPU, and the function that it runs
    ("file function"), which ranks have alike whatever line each was sampled in.
    """

    line: str
    share: float
    target: str = ""


@remembered
def busy_threads(facts: RankFacts) -> list[BusyThread]:
    """The threads of one rank whose lines are known, busiest first."""
    windows = facts.sidecar.cpu_waits.windows
    lasted_ns = sum(window.dur_ns for window in windows)
    cpu_ns: dict[str, int] = {}
    for window in windows:
        for thread in window.beside:
            cpu_ns[thread.name] = cpu_ns.get(thread.name, 0) + thread.cpu_ns
    tree, totals, threads = call_tree(facts), facts.script_totals, list[BusyThread]()
    for name, spent_ns in cpu_ns.items():
        of_thread = totals.take(totals["thread"] == name)
        line = _most_seen(tree, of_thread)
        if line and lasted_ns:
            threads.append(BusyThread(line, spent_ns / lasted_ns, _target(tree, of_thread)))
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
    totals = _making(facts)
    return None if totals is None else _most_seen(call_tree(facts), totals) or ""


def makes_batches(ranks: Sequence[RankFacts], thread: BusyThread) -> bool:
    """True where a rank takes its batches from a queue that such a thread fills."""
    made = ((facts, _making(facts)) for facts in ranks)
    return any(totals is not None and _target(call_tree(facts), totals) == thread.target for facts, totals in made)


def _making(facts: RankFacts) -> Table | None:
    """SCRIPT_TOTALS of threads that do not wait for a queue, where batches come from one; None where they do not."""
    tree, totals = call_tree(facts), facts.script_totals
    if not takes_batches(facts, tree).any():
        return None
    return totals.take((totals["thread"] != "") & ~tree.within(tree.matching(_QUEUES))[totals["stack"]])


def threads_alone(ranks: Sequence[RankFacts]) -> dict[int, BusyThread]:
    """The busiest thread, by position, of each rank that runs one of a function that no thread of most peers runs."""
    threads = [busy_threads(facts) for facts in ranks]
    having = Counter(target for of_rank in threads for target in {thread.target for thread in of_rank})
    alone = {
        p: [thread for thread in of_rank if having[thread.target] <= len(ranks) / 2]
        for p, of_rank in enumerate(threads)
    }
    return {position: of_rank[0] for position, of_rank in alone.items() if of_rank}


def _most_seen(tree: CallTree, totals: Table) -> str | None:
    """The user's line with most of the time of SCRIPT_TOTALS; None without one."""
    frame = _longest(tree, tree.folded, totals)
    return None if frame is None else tree.words(frame)


def _target(tree: CallTree, totals: Table) -> str:
    """The user's function ("file function") that a thread of these SCRIPT_TOTALS runs; "" without one."""
    frame = _longest(tree, tree.around(tree.is_user), totals)
    return "" if frame is None else tree.names[frame]


def _longest(tree: CallTree, stand_for: Array, totals: Table) -> int | None:
    """The frame with most of the time, of stacks that others `stand_for` (-1: none); None without one."""
    if not len(totals):
        return None
    stack = stand_for[totals["stack"]]
    seen = np.bincount(tree.frame[np.maximum(stack, 0)], weights=totals["time_ns"] * (stack >= 0))
    return int(np.argmax(seen)) if seen.any() else None
