"""Parts that other packages register by entry points; all groups are read at once, from each package's own list."""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import Any

_OURS = b"[ddprof."  # begins each of our groups in entry_points.txt


def registered(group: str) -> list[Any]:
    """Objects that other packages register in a group, loaded, in the order of their packages."""
    return [point.load() for point in _all().select(group=group)] if _are_any() else []


@cache
def _all() -> Any:
    from importlib.metadata import entry_points

    return entry_points()  # of another type in each version of Python, with one way to choose a group


@cache
def _are_any() -> bool:
    """True where a package may register something. importlib.metadata, with what it imports, takes a third of what
    `--help` does; to read the files of installed packages takes a tenth of that."""
    return any(map(_may_register, sys.path))


def _may_register(place: str) -> bool:
    try:
        entries = os.scandir(place or os.curdir)
    except OSError as error:
        return isinstance(error, NotADirectoryError)  # an archive: what is in it importlib.metadata knows
    with entries:
        paths = [entry.path for entry in entries if entry.name.lower().endswith(("dist-info", "egg-info"))]
    return any(map(_names_ours, paths))


def _names_ours(package: str) -> bool:
    try:
        with open(os.path.join(package, "entry_points.txt"), "rb") as file:
            return _OURS in file.read()
    except OSError:
        return False
