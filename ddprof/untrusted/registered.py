"""Parts that other packages register by entry points; all groups are read at once, from each package's own list."""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points
from typing import Any


def registered(group: str) -> list[Any]:
    """Loaded entry points of other packages in a group, in the order of packages."""
    return [point.load() for point in _all().select(group=group)]


@cache
def _all() -> Any:
    return entry_points()  # of another type in each version of Python, with one way to choose a group
