"""The script's call behind a cause that occupies the host: data prepared, state saved, a model evaluated."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec import Struct

from ddprof import intervals
from ddprof.analyzers.facts.model import Phase, RankFacts
from ddprof.analyzers.facts.script.occupants import LOADER_FETCH, saving_around, saving_frames
from ddprof.analyzers.facts.script.tree import CallTree, call_tree
from ddprof.analyzers.facts.stepping.device_time import NEVER
from ddprof.analyzers.facts.work import running
from ddprof.analyzers.job.script.alone import FEWEST_SAMPLES
from ddprof.analyzers.job.script.beside import COLLECTIVE, FORWARD, REST, run_samples
from ddprof.analyzers.job.script.lines import has_frames, lines_in, time_by_stack
from ddprof.intervals import Intervals


class SeenSaving(Struct, frozen=True):
    """Samples of the training thread in saving, evaluating or logging, and the script line with most of them."""

    line: str
    samples: int
    of: int
    is_evaluation: bool = False  # told by the model that it calls beside the phases, whatever its name

    @property
    def share(self) -> float:
        """Share of all samples after start-up."""
        return self.samples / self.of


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


def seen_saving(facts: RankFacts) -> SeenSaving | None:
    """Samples of the whole run in saving, evaluating or logging; None without any."""
    tree = call_tree(facts)
    seen = run_samples(facts)
    around = saving_around(tree)
    by_line: dict[str, float] = {}
    for stack, samples in seen.items():
        if around[stack] >= 0 and tree.folded[stack] >= 0:
            # What saves or evaluates by its own name is told by it, a call of a library by the line that calls it.
            outer = int(around[stack])
            named = outer if tree.is_user[tree.frame[outer]] else int(tree.folded[outer])
            line = tree.words(int(tree.frame[named if named >= 0 else tree.folded[stack]]))
            by_line[line] = by_line.get(line, 0.0) + samples
    return _most_seen(by_line, seen)


def seen_evaluating(facts: RankFacts) -> SeenSaving | None:
    """Samples in functions of any name outside the training loop that call a model outside the step's phases; None
    without any. Where all ranks do so, it may be part of the step (a teacher): the caller decides.
    """
    tree = call_tree(facts)
    beside, every, calling = run_samples(facts, REST), run_samples(facts), _calling(facts)
    in_phases = [stack for stack in every if stack not in beside and tree.in_phase[stack]]
    if not calling or not in_phases:
        return None
    loop = {int(tree.function[frame]) for stack in in_phases for frame in _frames_to(tree, stack)}
    by_line: dict[str, float] = {}
    for stack, count in calling.items():
        stack = _caller(tree, stack)  # who calls a module evaluates, not its `forward`
        outside = [f for f in _frames_to(tree, stack) if tree.is_user[f] and int(tree.function[f]) not in loop]
        if outside:
            line = tree.words(outside[0])
            by_line[line] = by_line.get(line, 0.0) + count
    return _most_seen(by_line, every, is_evaluation=True)


def _most_seen(
    by_line: Mapping[str, float], every: Mapping[int, float], is_evaluation: bool = False
) -> SeenSaving | None:
    """The line with most samples, of `every` sample of the run by stack; None without any line."""
    most = max(by_line, key=lambda line: by_line[line], default="")
    return SeenSaving(most, int(sum(by_line.values())), int(sum(every.values())), is_evaluation) if by_line else None


def calls_beside(facts: RankFacts) -> tuple[float, float]:
    """Samples of the training thread in models called beside the step's phases, loss functions apart, and all of the
    run."""
    is_criterion = call_tree(facts).is_criterion
    called = sum(count for stack, count in _calling(facts).items() if not is_criterion[stack])
    return called, sum(run_samples(facts).values())


def after_update(facts: RankFacts) -> Intervals:
    """The host's own time from an optimizer's step to the next fetch of a batch, where no pass begins in between."""
    ends_ns, fetches = facts.phase_time(Phase.OPTIMIZER)[1], intervals.union(*facts.spans_of("dataloader").bounds)
    until_ns, pass_ns = (
        np.append(starts_ns, NEVER)[np.searchsorted(starts_ns, ends_ns)]
        for starts_ns, _ in (fetches, facts.phase_time(Phase.FORWARD))
    )
    is_between = (until_ns < NEVER) & (until_ns <= pass_ns)
    return intervals.intersect(running(facts), intervals.union(ends_ns[is_between], until_ns[is_between]))


def _calling(facts: RankFacts) -> dict[int, float]:
    """Samples in models called beside the step's phases, by stack.

    The collectives of a sharded model are a phase of their own, in and beside its passes: they belong to both as the
    other samples of the calling line do.
    """
    tree = call_tree(facts)
    is_called = tree.is_forward & ~tree.is_backward & ~tree.is_profiler  # nor compiles
    beside, inside, met = (
        {stack: count for stack, count in run_samples(facts, phase).items() if is_called[stack]}
        for phase in (REST, FORWARD, COLLECTIVE)
    )
    by_line: dict[int, list[float]] = {}
    for part, samples in enumerate((beside, inside)):
        for stack, count in samples.items():
            by_line.setdefault(_caller(tree, stack), [0.0, 0.0])[part] += count
    for stack, count in met.items():
        rest, passes = by_line.get(_caller(tree, stack), (0.0, 0.0))
        if rest:
            beside[stack] = beside.get(stack, 0.0) + count * rest / (rest + passes)
    return beside


def _caller(tree: CallTree, stack: int) -> int:
    """The stack, innermost, that calls the outermost model of a stack."""
    while tree.outer[stack] >= 0 and tree.is_forward[stack]:
        stack = int(tree.outer[stack])
    return stack


def line_that_evaluates(facts: RankFacts, during: Intervals) -> str:
    """The script line that calls a model `during` evaluation, else outside the run's phases; "" without samples."""
    tree = call_tree(facts)
    seen = dict(enumerate(time_by_stack(facts, during).tolist())) if len(during[0]) else {}
    for samples in (seen, run_samples(facts, REST)):
        by_line: dict[str, float] = {}
        for stack, amount in samples.items():
            if not amount or not tree.is_forward[stack] or tree.is_backward[stack]:
                continue
            stack = _caller(tree, stack)
            if tree.folded[stack] >= 0:
                line = tree.words(int(tree.frame[tree.folded[stack]]))
                by_line[line] = by_line.get(line, 0.0) + amount
        if by_line:
            return max(by_line, key=lambda line: by_line[line])
    return ""


def _frames_to(tree: CallTree, stack: int) -> list[int]:
    """Frames of a stack, outermost first."""
    frames = []
    while stack >= 0:
        frames.append(int(tree.frame[stack]))
        stack = int(tree.outer[stack])
    return frames[::-1]


def loads_for_evaluation(facts: RankFacts) -> bool:
    """True where loader samples of the training thread are mostly inside evaluation, so that no batch is awaited."""
    tree = call_tree(facts)
    loads, evaluates = tree.within(tree.matching(LOADER_FETCH)), tree.within(saving_frames(tree))
    seen = [(count, evaluates[stack]) for stack, count in run_samples(facts).items() if loads[stack]]
    total = sum(count for count, _ in seen)
    return total >= FEWEST_SAMPLES and sum(count for count, inside in seen if inside) > MOST_SHARE * total
