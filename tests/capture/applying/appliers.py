"""Appliers installed in this process for a while, without a session around them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ddprof.capture.applying.applier import Applier
from ddprof.capture.applying.outcomes import Outcomes
from ddprof.settings.wanted import parse_set


@contextmanager
def applying(cls: type[Applier], *stated: str, module: Any = None) -> Iterator[Outcomes]:
    """`--set` for each of `stated`."""
    import torch

    outcomes = Outcomes([parse_set(text) for text in stated])
    applier = cls(None, outcomes)  # type: ignore[arg-type]
    applier.install(module or torch)
    try:
        yield outcomes
    finally:
        applier.uninstall()
    assert outcomes.guard.faults == []


def told(outcomes: Outcomes) -> list[tuple[str, bool, object, str]]:
    """(setting, applied, before, why) of each row."""
    return [(row["setting"], row["applied"], row["before"], row["why"]) for row in outcomes.recorded()]
