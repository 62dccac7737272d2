"""A plan as a JSON document, and its command-line option."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from typing import Any, TypeVar

from msgspec import Struct

from ddprof.cli.load import tell

Plan = TypeVar("Plan")


def print_plan(schema: str, label: str, plan: Plan, form: str, text: Callable[[Plan], list[str]]) -> None:
    """Print a plan as JSON, or as the lines of `text`, by `form`."""
    tell(as_json(schema, label, plan) if form == "json" else "\n".join(text(plan)))


def as_json(schema: str, label: str, plan: Any) -> str:
    """A plan (a dataclass or a Struct) as a JSON document; curves with their best and flat values."""
    return json.dumps({"schema": schema, "run": label, **_plain(plan)}, indent=1, allow_nan=False)


def _plain(value: Any) -> Any:
    is_struct = isinstance(value, Struct)
    if is_struct or (dataclasses.is_dataclass(value) and not isinstance(value, type)):
        names = value.__struct_fields__ if is_struct else [field.name for field in dataclasses.fields(value)]
        fields = {name: _plain(getattr(value, name)) for name in names}
        if fields.get("points") and "knob" in fields:
            curve: Any = value
            fields |= {"best": curve.best.value, "flat": [point.value for point in curve.flat]}
        return fields
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else None
    return value
