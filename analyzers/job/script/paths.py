"""Time of a rank in each function and line of the user's, outermost first, in its windows and the whole run."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.script.occupants import saving_around
from ddprof.analyzers.facts.script.tree import CallTree, call_tree
from ddprof.analyzers.facts.work import between_operators, blocked
from ddprof.analyzers.job.script.beside import BACKWARD, FORWARD, REST, phases_of, run_samples
from ddprof.analyzers.job.script.idle import MIN_TIMES
from ddprof.analyzers.job.script.lines import has_frames, time_by_stack
from ddprof.analyzers.job.whole_run.cpu_waits import traced_shares
from ddprof.intervals import Intervals
from ddprof.tables import Array

# The user's frames of a stack from outside in: each is two parts, (file, 0, function) and then (file, line, function).
# So a function is told from its lines, of which samples know several.
Part = tuple[str, int, str]
Path = tuple[Part, ...]
ANY_LINE = 0
KNOWN_SHARE = 0.5  # of the steps: where samples say less than what ran for most of them, the rest may be anything


@dataclass(frozen=True)
class RankPaths:
    """Samples of one rank by path, computed once, as it is compared with every late rank of the job.

    `step_us`: of a typical step. `without_phases`: nothing counts inside phases of the step, nor in calls that wait for
    other ranks. `without_saves`: nothing counts in what saves, evaluates or logs.
    """

    facts: RankFacts
    step_us: float
    without_phases: bool = False
    without_saves: bool = False

    @cached_property
    def has_frames(self) -> bool:
        """True where the recording shows what the script ran in some step."""
        return has_frames(self.facts) and len(self.facts.steps) > 0

    @cached_property
    def in_windows(self) -> dict[Path, float]:
        """Time in the windows, us per step; for ranks with steps only."""
        return self._in_windows(intervals.EMPTY)

    @cached_property
    def working(self) -> dict[Path, float]:
        """Time in the windows without waits for the device or for peers, us per step; for ranks with steps only."""
        return self._in_windows(blocked(self.facts))

    def _in_windows(self, without: Intervals) -> dict[Path, float]:
        own_ns = time_by_stack(self.facts, intervals.subtract(intervals.union(*self.facts.marks), without))
        return by_path(self.facts, self._counted(own_ns / 1e3 / len(self.facts.steps)))

    @cached_property
    def working_us(self) -> float:
        """Time of all of `working`, us per step."""
        return _all(self.working)

    @cached_property
    def is_known(self) -> bool:
        """True where the windows' samples cover most of the steps."""
        marks = intervals.union(*self.facts.marks)
        return float(time_by_stack(self.facts, marks).sum()) >= KNOWN_SHARE * intervals.length(marks)

    @cached_property
    def samples(self) -> Array:
        """Whole-run samples in each stack, shape (stacks,), as all amounts by stack here."""
        return self._counted(run_samples(self.facts))

    @cached_property
    def training_calls(self) -> frozenset[Path]:
        """Paths from which most samples in backward passes were called, or in forward passes where no backward pass is
        marked (schedules that compute gradients in two parts): where this rank trains.
        """
        tree, seen = self._tree, run_samples(self.facts, BACKWARD)
        seen = seen if seen.any() else run_samples(self.facts, FORWARD)
        caller = tree.called_from(tree.in_phase)
        calls = np.bincount(caller[caller >= 0], weights=seen[caller >= 0], minlength=len(tree))
        return frozenset(p for p, count in by_path(self.facts, calls).items() if 2 * count > calls.sum())

    def beside_training(self, us_by_path: dict[Path, float]) -> dict[Path, float]:
        """Paths without the functions that train, and their lines, where ranks train in functions of their own."""
        trains = self.training_calls if self.without_phases else frozenset()
        lines = {path for path in us_by_path if path[-1][1] != ANY_LINE and path[:-1] in trains}
        return {path: us for path, us in us_by_path.items() if path not in trains and path not in lines}

    @cached_property
    def seen(self) -> dict[Path, float]:
        """Whole-run samples on each path."""
        return by_path(self.facts, self.samples)

    @cached_property
    def over_the_run(self) -> dict[Path, float]:
        """Time in the path per step of `step_us`, by its share of the time that samples of the whole run stand for,
        without calls that wait for other ranks."""
        share = self.sampled_ns / max(1.0, run_samples(self.facts, column="time_ns").sum())
        return by_path(self.facts, self.step_us * share * ~self._tree.meets)

    @property
    def sampled_us(self) -> float:
        """Time of all of `over_the_run`, us per step."""
        return _all(self.over_the_run)

    @cached_property
    def sampled_ns(self) -> Array:
        """Time that the whole run's samples of each stack stand for: a call in C may keep the sampler from the
        interpreter, and then one sample stands for all of it."""
        return self._counted(run_samples(self.facts, column="time_ns"))

    @property
    def lacked_us(self) -> float:
        """Time per traced step in which the rank was ready and had no CPU, us; 0 where it was not recorded."""
        return self.step_us * float(np.nan_to_num(traced_shares([self.facts]).waited[0]))

    def held_us(self, phase: str) -> float:
        """Python between operators in forward or backward passes or beside the phases (`phase`), us per step; 0 on a
        device rank. The longest step counts as the next: what came once may not come again."""
        marks, phases = self.facts.marks, phases_of(self.facts, self._tree)
        held = intervals.subtract(between_operators(self.facts), blocked(self.facts))
        if phase == REST:
            held = intervals.subtract(held, phases.every)
        else:
            held = intervals.intersect(held, phases.forward if phase == FORWARD else phases.backward)
        each_ns = intervals.overlap(held, *marks)
        often_ns = np.sort(each_ns)[-MIN_TIMES] if len(each_ns) >= MIN_TIMES else np.inf
        return float(np.minimum(each_ns, often_ns).sum()) / 1e3 / max(1, len(each_ns))

    def called_in(self, phase: str) -> Array:
        """Whole-run samples in user functions called by such a phase, by stack, without torch's."""
        tree, called = self._tree, self._tree.folded
        is_there = {FORWARD: tree.is_forward, BACKWARD: tree.is_backward, REST: ~(tree.in_phase | tree.is_loss)}[phase]
        return run_samples(self.facts, phase) * (is_there[np.maximum(called, 0)] & (called >= 0) & ~tree.in_torch)

    def without_operators(self, samples: Array) -> Array:
        """Samples but for those in torch that a model's forward functions call: all ranks do that."""
        return samples * ~(self._tree.is_forward & self._tree.in_torch)

    def _counted(self, by_stack: Array) -> Array:
        left_out = np.zeros(len(self._tree), bool)
        if self.without_phases:
            left_out |= self._tree.in_phase | self._tree.meets
        if self.without_saves:
            left_out |= saving_around(self._tree) >= 0
        return by_stack * ~left_out

    @cached_property
    def _tree(self) -> CallTree:
        return call_tree(self.facts)


def _all(us_by_path: dict[Path, float]) -> float:
    """Time of the outermost functions, which hold all others."""
    return sum(us for path, us in us_by_path.items() if len(path) == 1)


def by_path(facts: RankFacts, self_times: Array) -> dict[Path, float]:
    """Self times of stacks, shape (stacks,), summed over the user's functions, callees included."""
    paths = _paths(call_tree(facts))
    by_prefix: dict[Path, float] = {}
    for stack in np.flatnonzero(self_times).tolist():
        amount = float(self_times[stack])
        for length in range(1, len(paths[stack]) + 1):
            by_prefix[paths[stack][:length]] = by_prefix.get(paths[stack][:length], 0.0) + amount
    return by_prefix


def _paths(tree: CallTree) -> list[Path]:
    """The path of each stack. Callers stand before what they call."""
    parts = [((file, ANY_LINE, function), (file, line, function)) for file, line, function in tree.written]
    paths: list[Path] = []
    for frame, outer in zip(tree.frame.tolist(), tree.outer.tolist(), strict=True):
        around: Path = paths[outer] if outer >= 0 else ()
        paths.append((*around, *parts[frame]) if tree.is_user[frame] else around)
    return paths
