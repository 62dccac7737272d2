"""Script lines that create the objects of settings, and outcomes of settings to apply (docs/run-folder.md), typed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import astuple

from ddprof.sidecar.bounded import Count, Real, Whole


class MadeLine(Struct, frozen=True):
    """A line of the script that creates objects of a kind; `trains`: it creates the loader that feeds the optimizer."""

    object: str
    file: str
    line: Count
    function: str = ""
    trains: bool = False


class SettingOutcome(Struct, frozen=True):
    """One setting of one kind of object and place. `before`: the script's value; `why` it was not applied, else ""."""

    setting: str
    value: bool | Whole | Real | str
    at: str = ""
    object: str = ""
    applied: bool = False
    why: str = ""
    before: bool | Whole | Real | str | None = None
    objects: Count = 0


def merged(outcomes: Iterable[tuple[int, Sequence[SettingOutcome]]]) -> list[tuple[SettingOutcome, tuple[int, ...]]]:
    """Outcomes of ranks, equal ones as one with the ranks, in the order of recording."""
    kept: dict[str, tuple[SettingOutcome, set[int]]] = {}
    for rank, rows in outcomes:
        for row in rows:
            key = repr(astuple(row)[:-1])  # True and 1 are equal, and other settings
            kept.setdefault(key, (row, set()))[1].add(rank)
    return [(row, tuple(sorted(ranks))) for row, ranks in kept.values()]
