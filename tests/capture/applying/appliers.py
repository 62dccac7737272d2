"""Appliers installed in this process for a while, without a session around them."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ddprof.capture.applying.outcomes import Outcomes
from ddprof.capture.instruments.base import Instrumentor
from ddprof.settings.wanted import parse_set


@contextmanager
def applying(cls: type[Instrumentor], *stated: str, module: Any = None, of: tuple[str, ...] = ()) -> Iterator[Outcomes]:
    """`--set` for each of `stated`. `of`: which wrapper, for appliers that each have one; `module`: where it is."""
    import torch

    outcomes = Outcomes([parse_set(text) for text in stated])
    applier: Any = cls(None, outcomes, *of)  # type: ignore[arg-type, call-arg]
    applier.install(module or (sys.modules[of[0]] if of else torch))
    try:
        yield outcomes
    finally:
        applier.uninstall()
    assert outcomes.guard.faults == []


def told(outcomes: Outcomes) -> list[tuple[str, bool, object, str]]:
    """(setting, applied, before, why) of each row."""
    return [(row["setting"], row["applied"], row["before"], row["why"]) for row in outcomes.recorded()]
