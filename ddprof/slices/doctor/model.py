"""One part of an installation, and its state."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class State(enum.Enum):
    """The state of a part: it works, it is missing, so that ddprof can do less, or it cannot be determined here."""

    OK = "ok"
    MISSING = "missing"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Provision:
    """Result of one check. `said`: what was found; `remedy`: what to do, "" where nothing is needed."""

    name: str
    state: State
    said: str
    remedy: str = ""
