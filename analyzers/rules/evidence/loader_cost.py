"""Cost of a batch in the loader, timed by capture inside the workers: CPU, waiting, collating."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.script.occupants import LOADER_FETCH
from ddprof.analyzers.facts.script.tree import call_tree, written
from ddprof.analyzers.job.script.beside import DATA, MIN_SAMPLES, run_samples
from ddprof.analyzers.job.script.kinds import MOST
from ddprof.analyzers.job.script.lines import lines_of
from ddprof.analyzers.job.whole_run.cpu_waits import BUSY_SHARE
from ddprof.analyzers.replay.changes.loader.fetch_costs import batch_kind, core_share
from ddprof.findings import Evidence
from ddprof.sidecar import TimedFetches, WorkerLine
from ddprof.units import format_share, format_us

_DRAWS = re.compile(r"^torch/utils/data/dataloader\.py _next_index$")
MIN_LINE_SHARE = 0.3  # of a batch's time: a line that holds less is one of many, and is to be seen ten times


class FetchCost(Struct, frozen=True):
    """Cost of a batch on one rank. `core_share`: of that time on a core or runnable; None where not recorded."""

    timed: TimedFetches
    core_share: float | None

    @property
    def fetch_us(self) -> float:
        """Median time to make a batch."""
        return self.timed.fetch_ns / 1e3

    @property
    def kind(self) -> str | None:
        """Main part of a batch's time: "collate", "cpu", "wait" or "mixed"; None where CPU time was not recorded."""
        return batch_kind(self.core_share, self.timed.collate_share)

    @property
    def turn_us(self) -> float:
        """Time per batch that only one worker at a time can spend; 0 where nothing shows a lock."""
        return (self.timed.turn_ns or 0) / 1e3


def fetch_cost(facts: RankFacts) -> FetchCost | None:
    """The loader's cost on a rank; None where capture did not time its workers."""
    timed = facts.sidecar.fetching
    return None if timed is None or not timed.fetch_ns else FetchCost(timed, core_share(facts))


_WHAT = {
    "collate": "most of it in the collate function",
    "cpu": "bound by the CPU (decoding, transforms)",
    "wait": "mostly waiting (storage, network, locks)",
    "mixed": "part CPU, part waiting",
}


def evidence(cost: FetchCost, rank: int) -> Evidence:
    """Maker of a batch, time that it takes, and what that is spent on, in one sentence."""
    workers, share = cost.timed.workers, cost.timed.cpu_share
    several = f"each of {workers} workers" if workers > 1 else "the only worker"
    where = several if workers else "the training process itself"
    text = f"{where} takes {format_us(cost.fetch_us)} per batch of {cost.timed.samples} samples"
    if cost.kind is not None and share is not None:
        text += f", {format_share(share)} on the CPU"
        if (waited := cost.timed.waited_share) is not None and waited >= BUSY_SHARE:
            text += f" and {format_share(waited)} ready to run without one"
        text += f": {_WHAT[cost.kind]}"
    if cost.turn_us:
        text += f"; {_who_in_turn(cost.timed)} (a lock, or one file or connection)"
    return Evidence(text, rank)


def _who_in_turn(timed: TimedFetches) -> str:
    turn_us = (timed.turn_ns or 0) / 1e3
    if timed.turn_ranks < 2:
        return f"workers fetch one at a time, {format_us(turn_us)} each"
    each = format_us(turn_us / timed.turn_ranks)
    return f"the workers of {timed.turn_ranks} ranks of the host fetch one at a time, {each} each"


def line_of(cost: FetchCost) -> WorkerLine | None:
    """The script line in which fetching workers were sampled most; None where none has a clear share of the time."""
    line = next(iter(cost.timed.lines), None)
    is_clear = line is not None and line.share >= MIN_LINE_SHARE and line.samples * line.share >= MIN_SAMPLES
    return line if is_clear else None


def own_line(ranks: Sequence[RankFacts]) -> tuple[str, int] | None:
    """The script line in which the training threads themselves were sampled most while making batches, with the number
    of samples over the run of all `ranks`; None where these are too few.
    """
    seen: Counter[str] = Counter()
    for facts in ranks:
        tree, samples = call_tree(facts), np.zeros(len(facts.script_stacks))
        fetched = tree.within(tree.matching(LOADER_FETCH))[np.maximum(tree.folded, 0)]  # the loop is on every stack
        for stack, count in run_samples(facts, DATA).items():
            samples[stack] = count if fetched[stack] and tree.folded[stack] >= 0 else 0.0
        for line in lines_of(facts, samples):
            seen[line.words if line.file else ""] += int(line.time_ns)
    words, most = max(((words, n) for words, n in seen.items() if words), key=lambda pair: pair[1], default=("", 0))
    return (words, most) if most >= MIN_SAMPLES and most > MOST * seen.total() else None


def drawing_line(ranks: Sequence[RankFacts]) -> str | None:
    """The line of a sampler in which the training threads were for most of their loading, whatever the workers: the
    sampler runs in the training process. None where most of it is something else, or samples are too few.
    """
    seen, total = Counter[str](), 0.0
    for facts in ranks:
        tree, samples = call_tree(facts), run_samples(facts, DATA)
        total += sum(samples.values())
        drawn = tree.within(tree.matching(_DRAWS))
        for stack, count in samples.items():
            if drawn[stack]:
                user = int(tree.folded[stack])  # the loop, for a sampler of PyTorch
                seen[tree.words(int(tree.frame[user if user >= 0 and drawn[user] else stack]))] += int(count)
    return seen.most_common(1)[0][0] if seen.total() >= MIN_SAMPLES and seen.total() > MOST * total else None


def line_evidence(cost: FetchCost, rank: int, ranks: Sequence[RankFacts]) -> tuple[Evidence, ...]:
    """Script line and call that make a batch of `rank`, and how long they take, in one sentence. `ranks`: those that
    make theirs alike, whose samples count together."""
    line, sampled = line_of(cost), own_line(ranks)
    if line is None and sampled is not None:
        alone = len(ranks) == 1
        threads = "the training thread is" if alone else "the training threads are"
        words = f"{threads} in {sampled[0]} ({sampled[1]} samples of {'its' if alone else 'their'} fetches)"
        return (Evidence(words, rank if alone else None),)
    if line is None:
        return ()
    call = f", {line.call}" if line.call else ""
    where = f"{written(line.file, line.line, line.function)}{call}"
    spent = f"{format_us(line.share * cost.fetch_us)} of {format_us(cost.fetch_us)}"
    who = "the worker" if cost.timed.workers == 1 else "each worker"
    return (Evidence(f"{who} is in {where} for {spent} per batch ({line.samples} samples)", rank),)
