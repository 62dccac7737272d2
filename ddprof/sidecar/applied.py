"""Script lines that create the objects of settings, and outcomes of settings to apply (docs/run-folder.md), typed."""

from __future__ import annotations

from msgspec import Struct

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
    before: bool | Whole | Real | str | None = None
    applied: bool = False
    why: str = ""
    objects: Count = 0
