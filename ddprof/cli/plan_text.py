"""What all plans print alike: a curve as a table with bars, any plan as text or JSON."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ddprof.cli.load import tell
from ddprof.units import format_us

if TYPE_CHECKING:
    from ddprof.analyzers.planning.curve import SettingCurve

format_option = click.option("--format", "form", type=click.Choice(("text", "json")), default="text", show_default=True)
Plan = TypeVar("Plan")
_BAR = 36
_CLIPPED = 2.5  # bars longer than so many times the best one say nothing more


def curve_lines(curve: SettingCurve, advised: float | None = None) -> list[str]:
    """One line per value: the predicted step, a bar, and what is special about the value."""
    if not curve.points:
        return []
    most = min(max(point.step_us for point in curve.points), _CLIPPED * curve.best.step_us)
    flat = {point.value for point in curve.flat}
    lines = [f"  {curve.knob:>15}  {'step':>9}"]
    for point in curve.points:
        marks = [
            word
            for word, holds in (
                ("now", point.value == curve.now),
                ("best", point == curve.best),
                ("advised", point.value == advised),
            )
            if holds
        ]
        bar = ("█" if point.value in flat else "░") * max(1, round(_BAR * min(1.0, point.step_us / most)))
        lines.append(f"  {point.value:>15g}  {format_us(point.step_us):>9}  {bar} {', '.join(marks)}".rstrip())
    return lines


def flat_words(curve: SettingCurve) -> str:
    """The values as good as the best: a range where they follow one another, else a list."""
    flat = [point.value for point in curve.flat]
    at = [i for i, point in enumerate(curve.points) if point.value in flat]
    if len(flat) > 2 and at[-1] - at[0] == len(at) - 1:
        return f"{flat[0]:g} to {flat[-1]:g} are"
    return f"{', '.join(f'{value:g}' for value in flat)} {'is' if len(flat) == 1 else 'are'}"


def print_plan(schema: str, label: str, plan: Plan, form: str, text: Callable[[Plan], list[str]]) -> None:
    """A plan on stdout: as JSON where `form` says so, else in the lines that `text` makes of it."""
    tell(as_json(schema, label, plan) if form == "json" else "\n".join(text(plan)))


def as_json(schema: str, label: str, plan: Any) -> str:
    """A plan (a dataclass) as a JSON document; curves with their best and flat values."""
    return json.dumps({"schema": schema, "run": label, **_plain(plan)}, indent=1, allow_nan=False)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        if fields.get("points") and "knob" in fields:
            fields |= _summary(value)
        return fields
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else None
    return value


def _summary(curve: Any) -> dict[str, Any]:
    return {"best": curve.best.value, "flat": [point.value for point in curve.flat]}
