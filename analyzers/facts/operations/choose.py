"""The operations of any rank."""

from __future__ import annotations

from collections.abc import Callable

from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.operations.cpu import cpu_work
from ddprof.analyzers.facts.operations.device import device_work
from ddprof.analyzers.facts.operations.model import RankWork
from ddprof.model import RankTrace


def rank_work(facts: RankFacts, read_again: Callable[[str], RankTrace]) -> RankWork:
    """The operations of a rank in its steps. `read_again`: the trace by the path of the facts, of a CPU rank."""
    return device_work(facts) if facts.is_device_rank else cpu_work(facts, read_again(facts.path))


def runs_operators(facts: RankFacts) -> bool:
    """Whether the operations are the operators of a CPU rank rather than kernels."""
    return not facts.is_device_rank
