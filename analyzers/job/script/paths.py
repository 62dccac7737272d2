"""How long a rank is in each function and line of the user's, from outside in: in its windows, and in the whole run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from ddprof import intervals
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.script.tree import CallTree
from ddprof.analyzers.job.script.beside import is_sampled, run_samples, sampled_beside
from ddprof.analyzers.job.script.idle import ScriptTime
from ddprof.analyzers.job.script.lines import has_frames, time_by_stack
from ddprof.intervals import Intervals

# The user's frames of a stack from outside in: each is two parts, (file, 0, function) and then (file, line, function).
# So a function is told from its lines, of which samples know several.
Part = tuple[str, int, str]
Path = tuple[Part, ...]
ANY_LINE = 0
KNOWN_SHARE = 0.5  # of the steps: where samples say less than what ran for most of them, the rest may be anything


@dataclass(frozen=True)
class RankPaths:
    """What one rank was seen in, worked out once: it is compared with every late rank of the job.

    `step_us`: of a typical step; `beside`: the time beside the phases, None where that is not asked for.
    """

    facts: RankFacts
    step_us: float
    beside: ScriptTime | None = None

    @cached_property
    def has_frames(self) -> bool:
        """Whether the recording says what the script ran in some step."""
        return has_frames(self.facts) and len(self.facts.steps) > 0

    @cached_property
    def in_windows(self) -> dict[Path, float]:
        """Time in the windows, us per step. Only of a rank that has steps."""
        return in_windows(self.facts, intervals.EMPTY)

    @cached_property
    def is_known(self) -> bool:
        """Whether the samples of the windows say what ran for most of the steps."""
        marks = intervals.union(*self.facts.marks)
        return float(time_by_stack(self.facts, marks).sum()) >= KNOWN_SHARE * intervals.length(marks)

    @cached_property
    def is_sampled(self) -> bool:
        """Whether stacks were sampled, not traced."""
        return is_sampled(self.facts)

    @cached_property
    def samples(self) -> dict[int, float]:
        """How often it was seen in each stack over the whole run."""
        return run_samples(self.facts)

    @cached_property
    def seen(self) -> dict[Path, float]:
        """How often it was seen there over the whole run."""
        return by_path(self.facts, self.samples)

    @cached_property
    def over_the_run(self) -> dict[Path, float]:
        """Time of a step of `step_us`, by the samples of the whole run: as often as it is seen there."""
        total = sum(self.samples.values())
        return by_path(self.facts, {stack: self.step_us * count / total for stack, count in self.samples.items()})

    @cached_property
    def sampled_beside(self) -> int:
        """How many samples of the whole run found it beside its phases."""
        return sampled_beside(self.facts)

    @cached_property
    def beside_us(self) -> float | None:
        """All that it does beside the phases, us per step; None where its phases are not known."""
        if self.beside is None or not len(self.facts.steps) or not len(self.beside.every[0]):
            return None
        return float(intervals.overlap(self.beside.every, *self.facts.marks).sum()) / 1e3 / len(self.facts.steps)


def in_windows(facts: RankFacts, without: Intervals) -> dict[Path, float]:
    """Time (us per step) in the user's functions and all that they call, without some stretches."""
    own_ns = time_by_stack(facts, intervals.subtract(intervals.union(*facts.marks), without))
    return by_path(facts, {stack: ns / 1e3 / len(facts.steps) for stack, ns in enumerate(own_ns.tolist()) if ns})


def by_path(facts: RankFacts, own: Mapping[int, float]) -> dict[Path, float]:
    """What is in stacks alone (by their rows), summed over the user's functions and all that they call."""
    paths = _paths(CallTree(facts.script_stacks, facts.script_frames))
    found: dict[Path, float] = {}
    for stack, amount in own.items():
        for length in range(1, len(paths[stack]) + 1):
            found[paths[stack][:length]] = found.get(paths[stack][:length], 0.0) + amount
    return found


def _paths(tree: CallTree) -> list[Path]:
    """The path of each stack. Callers stand before what they call."""
    parts = [((file, ANY_LINE, function), (file, line, function)) for file, line, function in tree.written]
    paths: list[Path] = []
    for frame, outer in zip(tree.frame.tolist(), tree.outer.tolist(), strict=True):
        around: Path = paths[outer] if outer >= 0 else ()
        paths.append((*around, *parts[frame]) if tree.is_user[frame] else around)
    return paths
