"""Memoised functions of immutable objects; results live as long as the object."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")


def remembered(derive: Callable[Concatenate[T, P], R]) -> Callable[Concatenate[T, P], R]:
    """Memoise `derive` per object, its first argument, and per combination of the other arguments.

    The object must never change. Results go with it; a copy made by `dataclasses.replace` starts anew.
    """
    name = f"{derive.__module__}.{derive.__qualname__}"

    @wraps(derive)
    def ask(of: T, /, *how: P.args, **named: P.kwargs) -> R:
        kept: dict[Any, Any] = vars(of)
        key = (name, how, tuple(named.items()))
        if key not in kept:
            kept[key] = derive(of, *how, **named)
        result: R = kept[key]
        return result

    return ask
