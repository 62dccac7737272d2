"""Plain data with every text in it replaced."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

Something = TypeVar("Something")


def rewritten(value: Something, text: Callable[[str], str], keys: bool = True) -> Something:
    """A copy of plain data (dataclasses, sequences, mappings and `keys`) in which every text went through `text`."""
    return _rewritten(value, text, keys)  # type: ignore[no-any-return]


def _rewritten(value: Any, text: Callable[[str], str], keys: bool) -> Any:
    if isinstance(value, str):
        return text(value)
    if isinstance(value, tuple | list):
        return type(value)(_rewritten(item, text, keys) for item in value)
    if isinstance(value, Mapping):
        return {
            _rewritten(key, text, keys) if keys else key: _rewritten(item, text, keys) for key, item in value.items()
        }
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: _rewritten(getattr(value, f.name), text, keys) for f in fields(value)})
    return value
