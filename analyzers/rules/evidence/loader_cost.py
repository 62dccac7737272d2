"""Time to make a batch, timed by capture in the workers and the training thread: CPU, waiting, collating, the script's
line; and whether workers keep up.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from operator import attrgetter

import numpy as np
from msgspec import Struct

from ddprof import averages
from ddprof.analyzers.execution.choose import execution_of
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.script.occupants import LOADER_FETCH
from ddprof.analyzers.facts.script.tree import call_tree, written
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.script.beside import DATA, MIN_SAMPLES, run_samples
from ddprof.analyzers.job.script.kinds import MOST
from ddprof.analyzers.job.script.lines import lines_of
from ddprof.analyzers.job.whole_run.cpu_waits import BUSY_SHARE, run_shares
from ddprof.analyzers.job.whole_run.unprofiled_steps import MIN_STEPS, average_ns, unprofiled_steps
from ddprof.analyzers.replay.changes.loader import batch_kind, busy_step_us, core_share, needed_workers, rank_costs
from ddprof.derived_once import remembered
from ddprof.findings import Evidence
from ddprof.sidecar import StepTimes, TimedFetches, WorkerLine
from ddprof.tables import Array
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


def evidence(cost: FetchCost | None, rank: int) -> tuple[Evidence, ...]:
    """Maker of a batch, time that it takes, and what that is spent on, in one sentence; () for an unknown cost."""
    if cost is None:
        return ()
    workers, share = cost.timed.workers, cost.timed.cpu_share
    several = f"each of {workers} workers" if workers > 1 else "the only worker"
    where = several if workers else "the training process itself"
    text = f"{where} takes a median {format_us(cost.fetch_us)} per batch of {cost.timed.samples} samples"
    if cost.kind is not None and share is not None:
        text += f", {format_share(share)} on the CPU"
        if (waited := cost.timed.waited_share) is not None and waited >= BUSY_SHARE:
            text += f" and {format_share(waited)} ready to run without one"
        text += f": {_WHAT[cost.kind]}"
    if cost.turn_us:
        text += f"; {_who_in_turn(cost.timed)} (a lock, or one file or connection)"
    return (Evidence(text, rank),)


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
        tree = call_tree(facts)
        fetched = tree.within(tree.matching(LOADER_FETCH))[np.maximum(tree.folded, 0)]  # the loop is on every stack
        for line in lines_of(facts, run_samples(facts, DATA) * (fetched & (tree.folded >= 0))):
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
        total += samples.sum()
        drawn, user = tree.within(tree.matching(_DRAWS)), tree.folded  # the loop, for a sampler of PyTorch
        line = np.where((user >= 0) & drawn[np.maximum(user, 0)], user, np.arange(len(tree)))
        seen += tree.by_words(line, samples * drawn)
    return seen.most_common(1)[0][0] if seen.total() >= MIN_SAMPLES and seen.total() > MOST * total else None


def makes_most(cost: FetchCost, ranks: Sequence[RankFacts]) -> str:
    """The script line that makes most of a batch, in words; "" where samples do not show one."""
    line, sampled = line_of(cost), own_line(ranks)
    if line is not None:
        return written(line.file, line.line, line.function)
    return sampled[0] if sampled is not None else ""


def line_evidence(cost: FetchCost | None, rank: int, ranks: Sequence[RankFacts]) -> tuple[Evidence, ...]:
    """Script line and call that make a batch of `rank`, and how long they take, in one sentence; () for an unknown
    cost. `ranks`: those that make theirs alike, whose samples count together."""
    if cost is None:
        return ()
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


# Time to make batches on each rank, timed by capture, and whether workers keep up.

WAITED_PART = 0.5  # of what batches take longer: more waiting for a CPU explains it (trust/busy_machine.py)


@remembered
def keep_up(measures: Measures) -> Array:
    """Mask of ranks whose workers make a step's batches in less than the step takes without waiting; shape (ranks,).
    There a fetch costs only handing over and want of a CPU, which no loader setting shortens. False where workers were
    not timed or take turns, and on devices, where handing over takes no device time.
    """
    had, busy_us = measures.settings.loader.num_workers or 0, busy_step_us(measures)
    handed = execution_of(measures.job).limits.handover_us > 0
    each = zip(rank_costs(measures, had), measures.job.ranks, measures.host_counts["dataloader"], strict=True)
    return np.array(
        [
            handed
            and cost is not None
            and (timed := facts.sidecar.fetching) is not None
            and timed.workers > 0
            and not cost.turn_ns
            and needed_workers(max(1.0, count) * cost.mean_ns / 1e3, busy_us) <= timed.workers
            for cost, facts, count in each
        ],
        bool,
    )


def lack_cores(measures: Measures, late: Array, others: Array) -> bool:
    """True where workers of the `late` ranks take longer for a batch than those of the `others` because they wait for a
    CPU for that long, on cores that all share: chance decides who waits. False where workers did not count it.
    """
    timed = [facts.sidecar.fetching for facts in measures.job.ranks]
    if any(one is None or one.waited_ns is None for one in timed):
        return False
    took_ns, waited_ns = np.array([(one.fetch_ns, one.waited_ns) for one in timed if one is not None], float).T
    more_ns, more_waited_ns = (np.median(ns[late]) - np.median(ns[others]) for ns in (took_ns, waited_ns))
    run = run_shares(measures.job.ranks)
    return bool(more_waited_ns > WAITED_PART * more_ns > 0) and all(
        run.is_shared(position) for position in late.tolist()
    )


@remembered
def made_us(measures: Measures) -> Array:
    """Time of a rank's training thread to make a step's batches, timed over the whole run, us, shape (ranks,): in the
    data set, or in the loader as a whole, whose sampler and iterator take time too. Traced fetches beyond it are want
    of a CPU. Infinite where untimed, or where workers make them.
    """
    every = zip(rank_costs(measures, 0), measures.host_counts["dataloader"], measures.job.ranks, strict=True)
    return np.array(
        [
            np.inf
            if cost is None or cost.source != "inline" or facts.sidecar.fetching is None
            else max(count * cost.mean_ns / 1e3, usual_loading_us(facts))
            for cost, count, facts in every
        ]
    )


def usual_loading_us(facts: RankFacts) -> float:
    """Median time in the loader of a rank's steps without the profiler, us; 0 where none was timed."""
    return (average_ns(unprofiled_steps(facts), attrgetter("data_ns"), np.median) or 0.0) / 1e3


# Loaders whose queue was full as the recording began: their workers are too slow, which shows only after it.
#
# A queue of N batches hides a slow loader for some N steps, as after a warm-up or an evaluation that took no batch.

LONGER = 2.0  # waits outside over waits in the recording: from there the recording is not typical of the loader
HIDDEN_WAIT = 0.5  # of the longer waits: by so much the steps outside are longer at least, else the waits are hidden


class DrainedQueue(Struct, frozen=True):
    """Waits for batches outside the recording: `shares` of the mean step, by rank; over `steps` of `step_us`."""

    shares: Array
    steps: int
    step_us: float


def drained_queue(ranks: Sequence[RankFacts]) -> DrainedQueue | None:
    """Waits for loaders that deliver less than a batch per step, where the recording holds less than half of them; None
    elsewhere, and where the workers of a rank were not timed.
    """
    outside = [_timed(unprofiled_steps(facts)) for facts in ranks]
    inside = [_timed([step for step in facts.sidecar.steps if step.profiled]) for facts in ranks]
    batches_ns = [one.fetch_ns / one.workers for f in ranks if (one := f.sidecar.fetching) is not None and one.workers]
    if len(batches_ns) < max(1, len(ranks)) or min(map(len, outside)) < MIN_STEPS or not all(map(len, inside)):
        return None
    means_ns = np.array([each.mean(axis=0) for each in outside])
    (length_ns, waited_ns), (traced_ns, within_ns) = (
        averages.typical_row(np.array(means)) for means in (means_ns, [each.mean(axis=0) for each in inside])
    )
    is_slow = averages.typical(batches_ns) > length_ns - waited_ns and waited_ns > LONGER * within_ns
    if not is_slow or length_ns - traced_ns < HIDDEN_WAIT * (waited_ns - within_ns):
        return None
    return DrainedQueue(means_ns[:, 1] / means_ns[:, 0], min(map(len, outside)), float(length_ns) / 1e3)


def _timed(steps: Sequence[StepTimes]) -> Array:
    """Length and wait for the batch of the steps whose timers have both, ns, shape (steps, 2)."""
    rows = [(step.length_ns, step.data_ns) for step in steps if step.length_ns is not None and step.data_ns is not None]
    return np.array(rows, float).reshape(-1, 2)
