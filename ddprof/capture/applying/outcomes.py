"""Outcomes of the fixes that this process was to apply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ddprof.capture.guard import Guard, say
from ddprof.capture.identity import identify
from ddprof.settings.catalogue import MADE_FOR, PROCESS, Value
from ddprof.settings.wanted import WantedFix

_MAX_ROWS = 256  # a script may make loaders without end
_MAX_PLACES = 8  # named where none of them is the wanted one
Place = Mapping[str, Any] | None  # the line of the script that makes an object, as `script_line` tells it
ROW = ("setting", "value", "at", "object", "before", "applied", "why")


class Outcomes:
    """Outcomes of all fixes: appliers report them, the sidecar reads them. All appliers share one guard, separate from
    that of capture: a rank whose capture has failed must build its model as its peers do.
    """

    def __init__(self, fixes: Sequence[WantedFix]) -> None:
        self.fixes = tuple(fixes)
        self.guard = Guard()
        self._rows: dict[tuple[Any, ...], int] = {}
        self._places: dict[str, list[str]] = {}  # target -> where its objects were made
        self._told: set[int] = set()  # fixes that something is known about
        self._awaited: dict[int, str] = {}  # fixes of a finished object that wait for an occasion -> what has not been
        self._said: set[str] = set()

    def meant_for(self, target: str, place: Place) -> list[WantedFix]:
        """The fixes for an object of a kind created at a place, those for this very place last."""
        file, line = ("", 0) if place is None else (place["file"], place["line"])
        where = self._places.setdefault(target, [])
        if words(place) not in where and len(where) < _MAX_PLACES:
            where.append(words(place))
        fixes = [fix for fix in self.fixes if target in fix.targets and fix.is_made_at(file, line)]
        return sorted(fixes, key=lambda fix: bool(fix.at))

    def tell(
        self, fix: WantedFix, target: str, place: Place, why: str, before: Mapping[str, object] | None = None
    ) -> None:
        """Book that a fix is in force for an object, which would have had the values `before`; or, where there is a
        reason `why` it is not, that one, which rank 0 prints at once.
        """
        self._told.add(self.fixes.index(fix))
        for name, value in fix.values.items():
            row = (name, value, words(place), target, plain((before or {}).get(name)), not why, why)
            if row in self._rows or len(self._rows) < _MAX_ROWS:
                self._rows[row] = self._rows.get(row, 0) + 1
        line = f"not applied: {fix.words}: {why}"
        if why and line not in self._said and identify().rank == 0:
            self._said.add(line)
            say(line)

    def awaited(self, fix: WantedFix, why: str) -> None:
        """Book that a fix of an object waits for an event; `why`: the reason to report if the event never comes."""
        self._awaited[self.fixes.index(fix)] = why

    def recorded(self) -> list[dict[str, Any]]:
        """Outcomes for the sidecar, including fixes that met no object. Process settings report their own."""
        rows = [{**dict(zip(ROW, row, strict=True)), "objects": count} for row, count in self._rows.items()]
        for number, fix in enumerate(self.fixes):
            if number not in self._told and PROCESS not in fix.targets:
                why = self._awaited.get(number) or self._why_never(fix)
                rows += [row_of(name, value, fix.at, fix.targets[0], why) for name, value in fix.values.items()]
        return rows

    def _why_never(self, fix: WantedFix) -> str:
        if self.guard.faults:
            return f"applying failed: {self.guard.faults[0]}"
        made = [place for target in fix.targets for place in self._places.get(target, [])]
        what = " or ".join(MADE_FOR.get(target, target) for target in fix.targets)
        if not made:
            return f"the script made no {what}"
        return f"the script made no {what} there, but at {', '.join(sorted(set(made)))}"


def words(place: Place) -> str:
    """A place of the script as users write it; "" where only libraries call."""
    return "" if place is None else f"{place['file']}:{place['line']}"


def plain(value: object) -> Value | None:
    """A value as JSON accepts it."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    name = getattr(value, "name", None) or getattr(value, "_name", None)
    return str(name or type(value).__name__)[:60]


def row_of(name: str, value: Value, at: str, target: str, why: str) -> dict[str, Any]:
    """A sidecar row about a setting without an object of its own; `why` it is not in force, "" where it is."""
    row = (name, value, at, target, None, not why, why)
    return {**dict(zip(ROW, row, strict=True)), "objects": int(not why)}
