"""What ranks state in the same words, held once: of a thousand ranks each names the same thousand members."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ddprof.analyzers.facts.model import RankFacts


class Alike:
    """The names and process groups of the ranks seen so far."""

    def __init__(self) -> None:
        self._known: dict[Any, Any] = {}

    def shared(self, facts: RankFacts) -> RankFacts:
        """The same facts, holding what an earlier rank holds where both are equal."""
        strings, groups = (self._known.setdefault(own, own) for own in (facts.strings, facts.process_groups))
        return replace(facts, strings=strings, process_groups=groups)
