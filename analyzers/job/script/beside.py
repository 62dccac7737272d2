"""Time of a rank outside the phases by stack, from samples of the run or traced frames.

A window holds a few samples of each step, the whole run hundreds. The time between the phases, which is recorded
exactly, is shared among stacks by the whole run's samples there, or by traced frames.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.host import phase_ranges
from ddprof.analyzers.facts.model import Phase, RankFacts
from ddprof.analyzers.facts.script.phases import HostPhases, call_of, host_phases
from ddprof.analyzers.facts.script.tree import CallTree, call_tree, written
from ddprof.analyzers.job.script.kinds import MOST, LineKinds
from ddprof.analyzers.job.script.lines import ScriptLine, has_frames, lines_of, time_by_stack, training_spans
from ddprof.analyzers.job.script.threads import takes_batches
from ddprof.causes import SPAN_CAUSES
from ddprof.derived_once import remembered
from ddprof.intervals import Intervals
from ddprof.tables import Array

TRAINING = ""  # of script_totals
REST, OPTIMIZER, FORWARD, BACKWARD, DATA = "rest", "optimizer", "forward", "backward", "data"
COLLECTIVE = "collective"
START_UP = "start-up"  # the phase of samples before the third step
MIN_SAMPLES = 3  # of a line; fewer may be chance


def phases_of(facts: RankFacts, tree: CallTree) -> HostPhases:
    """The phases of a rank's training thread."""
    return host_phases(training_spans(facts), tree, phase_ranges(facts.phases))


def line_of_operators(ranks: Sequence[RankFacts], name: str) -> str:
    """The script line with most samples of the run in the phase of an operator of CPU ranks; "" with too few."""
    time_ns: dict[str, float] = {}
    for facts in filter(has_frames, ranks):
        tree, ops = call_tree(facts), facts.host_operators
        named = [at for at, text in enumerate(facts.strings) if text == name]
        rows = np.flatnonzero(np.isin(ops["name"], named))
        begun = ops["start_ns"][rows]
        phases = ((FORWARD, Phase.FORWARD), (OPTIMIZER, Phase.OPTIMIZER))
        inside = (
            text for text, phase in phases if 2 * intervals.contains(facts.phase_time(phase), begun).sum() > len(rows)
        )
        phase = next(inside, REST)
        for line in lines_of(facts, run_samples(facts, phase) * (tree.folded >= 0)):
            where = written(line.file, line.line, line.function)
            time_ns[where] = time_ns.get(where, 0.0) + line.time_ns
    hottest = max(time_ns, key=lambda where: time_ns[where], default="")
    return hottest if hottest and time_ns[hottest] >= MIN_SAMPLES else ""


def is_sampled(facts: RankFacts) -> bool:
    """True where stacks were sampled rather than traced."""
    return bool((facts.script_spans["resolution_ns"] > 0).any()) or not len(facts.script_spans)


@remembered
def run_samples(facts: RankFacts, phase: str | None = None, column: str = "samples") -> Array:
    """Samples of the training thread in each stack after start-up, in one phase or all; shape (stacks,), not to be
    written to. `column`: "time_ns" for the time that these samples stand for.
    """
    totals = facts.script_totals
    phases = totals["phase"].astype(str)
    rows = (totals["thread"].astype(str) == TRAINING) & (phases != START_UP if phase is None else phases == phase)
    by_stack = np.bincount(totals["stack"][rows], weights=totals[column][rows], minlength=len(facts.script_stacks))
    by_stack.flags.writeable = False
    return by_stack


def sampled_beside(facts: RankFacts) -> int:
    """Samples of the whole run in which the training thread was outside its phases."""
    return int(run_samples(facts, REST).sum())


def times_seen(facts: RankFacts, stacks: Array) -> int | None:
    """Whole-run samples of the training thread in some stacks (rows); None without any samples."""
    totals = facts.script_totals
    rows = (totals["thread"] == TRAINING) & np.isin(totals["stack"], stacks)
    return int(totals["samples"][rows].sum()) if is_sampled(facts) and len(totals) else None


def times_called(facts: RankFacts, line: ScriptLine, phases: Sequence[str], with_torch: bool = False) -> int:
    """Whole-run samples of a rank in the function of a line in these phases, without its torch calls but `with_torch`;
    in the line alone of a function that runs phases itself, such as the loop."""
    tree = call_tree(facts)
    named = np.array([name == f"{line.file} {line.function}" for name in tree.names], bool)
    named &= ~tree.trains | (tree.frames["line"] == line.line)
    is_called = named[tree.frame][np.maximum(tree.folded, 0)] & (with_torch | ~tree.in_torch) & (tree.folded >= 0)
    return int(sum(run_samples(facts, phase)[is_called].sum() for phase in phases))


def time_beside(facts: RankFacts, tree: CallTree, where: Intervals) -> Array:
    """Time (ns) in each stack within stretches beside the phases, shape (stacks,); it adds up to no more than their
    length where the whole run was sampled."""
    traced = np.where(tree.in_phase, 0.0, time_by_stack(facts, where))
    seen = run_samples(facts, REST, "time_ns")
    if not is_sampled(facts) or not seen.any():
        return traced
    length = intervals.length(where)
    away = _elsewhere(facts, tree, where)
    # Phases told by frames hold every call of a model; recorded ones do not hold those beside the passes.
    by_frames = not len(facts.phase_time(Phase.FORWARD)[0])
    every_ns = seen[~(away | (tree.in_phase & by_frames))].sum()
    seen = np.where(tree.in_phase | tree.is_loss | away, 0.0, seen)
    return seen * (length / every_ns) if seen.any() else traced


def own_optimizer(facts: RankFacts, tree: CallTree, phases: HostPhases) -> Array:
    """Time (ns) in each stack in the steps of an optimizer that the user wrote, operator by operator for each tensor;
    zero where they are torch's own or few. Shape (stacks,).
    """
    is_own = (tree.folded >= 0) & tree.is_optimizer[np.maximum(tree.folded, 0)]
    seen = run_samples(facts, OPTIMIZER, "time_ns")
    if not is_sampled(facts) or not seen.any():
        seen = time_by_stack(facts, phases.optimizer)
    seen = np.where(tree.is_optimizer, seen, 0.0)
    if seen[is_own].sum() <= MOST * seen.sum() or not LineKinds(facts).updates_each():
        return np.zeros(len(tree))
    length = intervals.length(intervals.intersect(phases.optimizer, intervals.union(*facts.marks)))
    return np.where(is_own, seen * (length / seen[is_own].sum()), 0.0)


def own_stacks(facts: RankFacts, tree: CallTree) -> Array:
    """Mask of stacks in the user's code, except calls whose time cannot be reduced; shape (stacks,)."""
    # A line that calls a pass, or a framework's whole training loop: what a library does around passes is its own.
    encloses = tree.around_any(tree.in_phase)
    user = np.maximum(tree.folded, 0)
    is_library = encloses[user] & ~tree.in_phase[user] & (tree.folded != np.arange(len(tree)))
    away = is_library | takes_batches(facts, tree) | tree.is_profiler | LineKinds(facts).needed()
    return np.asarray((tree.folded >= 0) & ~away)


def _elsewhere(facts: RankFacts, tree: CallTree, where: Intervals) -> Array:
    """Stacks of calls that make the loss, as far as the window shows, or that occupy the host as something else: they
    prepare batches, or save. Bool, shape (stacks,).
    """
    loss = phases_of(facts, tree).loss
    called = call_of(tree)
    in_call, size = called >= 0, int(called.max(initial=-1)) + 1
    within, in_loss = (
        np.bincount(called[in_call], weights=time_by_stack(facts, part)[in_call], minlength=size)
        for part in (where, loss)
    )
    away = np.append(in_loss > within, False)[called]  # call -1 is none
    named = facts.spans_of(*SPAN_CAUSES)["name"]
    words = {facts.strings[name] for name in np.unique(named).tolist() if name >= 0}
    frames = tree.frame[np.maximum(tree.aside, 0)].tolist()
    occupying = {call for call, frame in zip(called.tolist(), frames, strict=True) if tree.words(frame) in words}
    return np.asarray(away | np.isin(called, list(occupying)))
