"""Outcomes of the settings that a run was to apply: one table over all ranks, and one line of text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.structs import asdict

from ddprof.settings.wanted import shown

_Value = bool | Annotated[int, Meta(ge=-(1 << 62), le=1 << 62)] | Annotated[float, Meta(ge=-1e18, le=1e18)] | str
_MAX_SAID = 6


@dataclass(frozen=True)
class ToApply:
    """The fixes that a run is to apply: as text, for the ranks, and as variables of the command's environment."""

    words: tuple[str, ...]
    packed: str
    variables: Mapping[str, str]


class AppliedRow(Struct, frozen=True):
    """Outcome of one setting of one kind of object at one place on a rank. `before`: the script's value."""

    setting: str
    value: _Value
    at: str
    object: str
    applied: bool
    why: str = ""
    before: _Value | None = None
    objects: Annotated[int, Meta(ge=0, le=1 << 48)] = 0


def merged(rows_by_rank: Iterable[tuple[int, Sequence[AppliedRow]]]) -> tuple[dict[str, Any], ...]:
    """Rows with equal outcomes on several ranks merged, with the ranks, in order of arrival."""
    ranks: dict[tuple[Any, ...], list[int]] = {}
    kept: dict[tuple[Any, ...], AppliedRow] = {}
    for rank, rows in rows_by_rank:
        for row in rows:
            key = (row.setting, row.value, row.at, row.object, row.applied, row.why, row.before)
            kept.setdefault(key, row)
            if rank not in ranks.setdefault(key, []):
                ranks[key].append(rank)
    return tuple({**asdict(row), "ranks": sorted(ranks[key])} for key, row in kept.items())


def applied_line(rows: Sequence[Mapping[str, Any]]) -> str:
    """The outcomes in a line: "applied: num_workers=4 at train.py:57 (was 0); not applied: fused=true (reason)"."""
    done = list(dict.fromkeys(_place(row) + _before(row) for row in rows if row["applied"]))
    failed = list(dict.fromkeys(f"{_place(row)} ({row['why']})" for row in rows if not row["applied"]))
    parts = [f"applied: {_listed(done) if done else 'nothing'}"]
    return "; ".join([*parts, f"not applied: {_listed(failed)}"] if failed else parts)


def _listed(parts: Sequence[str]) -> str:
    more = f" and {len(parts) - _MAX_SAID} more (see manifest.json)" if len(parts) > _MAX_SAID else ""
    return ", ".join(parts[:_MAX_SAID]) + more


def _place(row: Mapping[str, Any]) -> str:
    return f"{row['setting']}={shown(row['value'])}" + (f" at {row['at']}" if row["at"] else "")


def _before(row: Mapping[str, Any]) -> str:
    if row["before"] is None:
        return ""
    return " (so already)" if row["before"] == row["value"] else f" (was {shown(row['before'])})"
