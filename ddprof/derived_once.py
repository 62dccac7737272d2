"""Values derived of an unchanging object once, and kept beside its fields for whoever asks again."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")


def remembered(derive: Callable[Concatenate[T, P], R]) -> Callable[Concatenate[T, P], R]:
    """`derive`, worked out once for each object, its first argument, and each choice of the others.

    The object must never change; what is kept goes when it goes, and a copy made by `dataclasses.replace` starts anew.
    """
    name = f"{derive.__module__}.{derive.__qualname__}"

    @wraps(derive)
    def ask(of: T, /, *how: P.args, **named: P.kwargs) -> R:
        kept: dict[Any, Any] = vars(of)
        key = (name, how, tuple(named.items()))
        if key not in kept:
            kept[key] = derive(of, *how, **named)
        found: R = kept[key]
        return found

    return ask
