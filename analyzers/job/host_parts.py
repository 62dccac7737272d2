"""Parts of a host's time that a setting shrinks, and that the replay scales by name (`scale_part`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ddprof import intervals
from ddprof.analyzers.facts.model import Once, Phase, RankFacts
from ddprof.analyzers.facts.script.host_time import blocked, computes
from ddprof.analyzers.job.looped import in_loops
from ddprof.intervals import EMPTY, Intervals
from ddprof.tables import Array

COMPILING, UNIT_HOOKS, STEPPING, LOOPED = "compiling", "unit hooks", "optimizer", "looped operators"


def part_by_step_ns(facts: RankFacts, part: str) -> Array:
    """Time of the host in a part, a constant of this module, in each step; shape (steps,)."""
    return intervals.overlap(part_of(facts, part), *facts.marks)


def part_us(facts: RankFacts, part: str) -> float:
    """Time of the host in a part, us per step."""
    return facts.host_us(part_of(facts, part))


def part_of(facts: RankFacts, part: str) -> Intervals:
    """Intervals of the host in a part, sorted."""
    return _PARTS[part](facts)


def _unit_hooks(facts: RankFacts) -> Intervals:
    """FSDP's Python around the passes of its units, on a CPU rank: a device may hide its host's."""
    return intervals.subtract(intervals.union(*facts.unit_hooks.bounds), blocked(facts)) if computes(facts) else EMPTY


_PARTS: Mapping[str, Callable[[RankFacts], Intervals]] = {
    # torch.compile works, as its own records or first runs far longer than later ones tell.
    COMPILING: lambda facts: intervals.union(*facts.once.bounds_of(facts.once["kind"] == Once.FIRST_RUN)),
    UNIT_HOOKS: _unit_hooks,
    STEPPING: lambda facts: facts.phase_time(Phase.OPTIMIZER) if computes(facts) else EMPTY,  # on a CPU rank
    LOOPED: in_loops,
}
