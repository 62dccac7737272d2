"""One part of an installation, and whether it works."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class State(enum.Enum):
    """Works; is missing, and ddprof can do less; or cannot be found out here."""

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
