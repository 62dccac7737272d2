"""The script's call behind a cause that occupies the host: data prepared, state saved, a model evaluated."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec import Struct

from ddprof import intervals
from ddprof.analyzers.facts.model import Phase, RankFacts
from ddprof.analyzers.facts.script.occupants import LOADER_FETCH, saving_around, saving_frames
from ddprof.analyzers.facts.script.tree import call_tree
from ddprof.analyzers.facts.stepping.device_time import NEVER
from ddprof.analyzers.facts.work import running
from ddprof.analyzers.job.script.alone import FEWEST_SAMPLES
from ddprof.analyzers.job.script.beside import COLLECTIVE, FORWARD, REST, run_samples
from ddprof.analyzers.job.script.lines import has_frames, lines_in, time_by_stack
from ddprof.intervals import Intervals
from ddprof.tables import Array


class SeenSaving(Struct, frozen=True):
    """Samples of the training thread in saving, evaluating or logging, and the script line with most of their time."""

    line: str
    samples: int
    of: int
    share: float  # of the time that all samples after start-up stand for


COLUMNS = ("samples", "time_ns")
MOST_SHARE = 0.5  # of the time of the cause: what recorded ranges (a loader's, a save's) do not explain


def occupying_line(facts: RankFacts, cause: str) -> str | None:
    """The script function, in words, with most of a cause's host spans; None where recorded ranges hold most of them,
    or no frames were recorded.

    A library's function is shown with the script line that called it.
    """
    if not has_frames(facts):
        return None
    spans = facts.spans_of(cause)
    tree = call_tree(facts)
    written = {tree.words(frame): frame for frame in range(len(tree.frames))}
    words = [facts.strings[name] for name in spans["name"].tolist()]
    by_script = np.array([text in written for text in words], bool)
    ranges = intervals.union(*spans.bounds_of(~by_script))
    sampled = intervals.subtract(intervals.union(*spans.bounds_of(by_script)), ranges)
    every = intervals.union(*spans.bounds)
    if not by_script.any() or intervals.length(sampled) <= MOST_SHARE * intervals.length(every):
        return None
    length = spans["end_ns"] - spans["start_ns"]
    names, which = np.unique(spans["name"][by_script], return_inverse=True)
    longest = facts.strings[int(names[np.argmax(np.bincount(which, weights=length[by_script]))])]
    if tree.frames["is_user"][written[longest]]:
        return longest
    caller = next(iter(lines_in(facts, sampled)), None)
    return longest if caller is None or not caller.call else caller.words


def sampled_share(facts: RankFacts, function: str) -> float:
    """Share of a rank's run outside the passes in a function ("train.py batches"), by its samples."""
    tree, every_ns = call_tree(facts), run_samples(facts, column="time_ns").sum()
    inside = tree.within(np.array([name == function for name in tree.names], bool))
    return float((run_samples(facts, REST, "time_ns") * inside).sum() / max(1.0, every_ns))


def seen_saving(facts: RankFacts) -> SeenSaving | None:
    """Samples of the whole run in saving, evaluating or logging; None without any."""
    tree = call_tree(facts)
    around = saving_around(tree)
    # What saves or evaluates by its own name is told by it, a call of a library by the line that calls it.
    named = tree.folded[np.maximum(around, 0)]
    named = np.where(named >= 0, named, tree.folded)
    return _most_seen(facts, named, lambda column: run_samples(facts, column=column) * (around >= 0))


def seen_evaluating(facts: RankFacts) -> SeenSaving | None:
    """Samples in functions of any name outside the training loop that call a model outside the step's phases; None
    without any. Where all ranks do so, it may be part of the step (a teacher): the caller decides.
    """
    tree = call_tree(facts)
    in_phases = (run_samples(facts) > 0) & (run_samples(facts, REST) == 0) & tree.in_phase
    if not in_phases.any():
        return None
    loop = tree.function[tree.frame[tree.around_any(in_phases)]]
    outside = tree.around(tree.is_user & ~np.isin(tree.function, loop))
    # Who calls a module evaluates, not its `forward`.
    return _most_seen(facts, outside[tree.caller(tree.is_forward)], lambda column: _calling(facts, column))


def _most_seen(facts: RankFacts, named: Array, inside: Callable[[str], Array]) -> SeenSaving | None:
    """The line with most time; None without any. `named`: the stack whose line is told, -1 for none; `inside`: amounts
    of a column by stack."""
    samples, time_ns = (inside(column) * (named >= 0) for column in COLUMNS)
    if not samples.any():
        return None
    by_line = call_tree(facts).by_words(named, time_ns)
    every, every_ns = (float(run_samples(facts, column=column).sum()) for column in COLUMNS)
    line = max(by_line, key=by_line.__getitem__)
    return SeenSaving(line, int(samples.sum()), int(every), float(time_ns.sum()) / every_ns)


def calls_beside(facts: RankFacts, column: str = "samples") -> tuple[float, float]:
    """Samples (`column` "time_ns": the time that they stand for) of the training thread in models called beside the
    step's phases, loss functions apart, and all of the run."""
    is_criterion = call_tree(facts).is_criterion
    return float(_calling(facts, column)[~is_criterion].sum()), float(run_samples(facts, column=column).sum())


def after_update(facts: RankFacts) -> Intervals:
    """The host's own time from an optimizer's step to the next fetch of a batch, where no pass begins in between."""
    ends_ns, fetches = facts.phase_time(Phase.OPTIMIZER)[1], intervals.union(*facts.spans_of("dataloader").bounds)
    until_ns, pass_ns = (
        np.append(starts_ns, NEVER)[np.searchsorted(starts_ns, ends_ns)]
        for starts_ns, _ in (fetches, facts.phase_time(Phase.FORWARD))
    )
    is_between = (until_ns < NEVER) & (until_ns <= pass_ns)
    return intervals.intersect(running(facts), intervals.union(ends_ns[is_between], until_ns[is_between]))


def _calling(facts: RankFacts, column: str) -> Array:
    """Samples, or their time, in models called beside the step's phases, shape (stacks,).

    The collectives of a sharded model are a phase of their own, in and beside its passes: they belong to both as the
    other samples of the calling line do.
    """
    tree = call_tree(facts)
    is_called = tree.is_forward & ~tree.is_backward & ~tree.is_profiler  # nor compiles
    beside, inside, met = (run_samples(facts, phase, column) * is_called for phase in (REST, FORWARD, COLLECTIVE))
    caller = tree.caller(tree.is_forward)
    rest, passes = (np.bincount(caller, weights=samples, minlength=len(tree))[caller] for samples in (beside, inside))
    return np.asarray(beside + met * rest / np.maximum(rest + passes, 1.0))


def line_that_evaluates(facts: RankFacts, during: Intervals) -> str:
    """The script line that calls a model `during` evaluation, else outside the run's phases; "" without samples."""
    tree = call_tree(facts)
    is_called, user = tree.is_forward & ~tree.is_backward, tree.folded[tree.caller(tree.is_forward)]
    for samples in (time_by_stack(facts, during), run_samples(facts, REST)):
        if by_line := tree.by_words(user, samples * is_called):
            return max(by_line, key=by_line.__getitem__)
    return ""


def loads_for_evaluation(facts: RankFacts) -> bool:
    """True where loader samples of the training thread are mostly inside evaluation, so that no batch is awaited."""
    tree = call_tree(facts)
    loads, evaluates = tree.within(tree.matching(LOADER_FETCH)), tree.within(saving_frames(tree))
    seen = run_samples(facts)
    total = seen[loads].sum()
    return bool(total >= FEWEST_SAMPLES and seen[loads & evaluates].sum() > MOST_SHARE * total)
