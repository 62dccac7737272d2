"""Appliers installed in this process for a while, without a session around them."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hubs import installed

from ddprof.capture.applying.outcomes import Outcomes
from ddprof.capture.instruments.base import Instrumentor
from ddprof.settings.wanted import parse_set


@contextmanager
def applying(cls: type[Instrumentor], *stated: Any, module: Any = None, of: tuple[str, ...] = ()) -> Iterator[Outcomes]:
    """`--set` for each of `stated`, text or fix. `of`: which wrapper, for appliers that each have one, in `module`."""
    import torch

    outcomes = Outcomes([parse_set(one) if isinstance(one, str) else one for one in stated])
    applier: Any = cls(None, outcomes, *of)  # type: ignore[arg-type, call-arg]
    with installed(applier, module or (sys.modules[of[0]] if of else torch)):
        yield outcomes
    assert outcomes.guard.faults == []


def told(outcomes: Outcomes) -> list[tuple[str, bool, object, str]]:
    """(setting, applied, before, why) of each row."""
    return [(row["setting"], row["applied"], row["before"], row["why"]) for row in outcomes.recorded()]
