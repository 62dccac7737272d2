"""The settings that were applied to the run, over all ranks."""

from __future__ import annotations

from collections.abc import Iterable

from ddprof.report.model import AppliedSetting
from ddprof.sidecar.applied import SettingOutcome


def over_ranks(outcomes: Iterable[tuple[int, tuple[SettingOutcome, ...]]]) -> tuple[AppliedSetting, ...]:
    """Outcomes that say the same of several ranks as one, in the order in which they were recorded."""
    ranks: dict[tuple[str, ...], list[int]] = {}
    kept: dict[tuple[str, ...], SettingOutcome] = {}
    for rank, rows in outcomes:
        for row in rows:
            key = (row.setting, _typed(row.value), row.at, row.object, _typed(row.before), str(row.applied), row.why)
            kept.setdefault(key, row)
            ranks.setdefault(key, []).append(rank)
    return tuple(
        AppliedSetting(
            setting=row.setting,
            value=_typed(row.value),
            at=row.at,
            object=row.object,
            before=None if row.before is None else _typed(row.before),
            applied=row.applied,
            why=row.why,
            ranks=tuple(sorted(set(ranks[key]))),
        )
        for key, row in kept.items()
    )


def _typed(value: object) -> str:
    """A value as it is typed on the command line."""
    return str(value).lower() if isinstance(value, bool) else str(value)
