"""One call of a constructor with other arguments; where that fails, the script's own call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ConstructorCall:
    """The arguments of one call, by position and by name."""

    signature: inspect.Signature
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def arguments(self) -> dict[str, Any] | None:
        """Every argument with its value, defaults included; None where the call does not fit the signature."""
        try:
            bound = self.signature.bind(*self.args, **self.kwargs)
        except TypeError:
            return None
        bound.apply_defaults()
        return dict(bound.arguments)

    def takes(self, name: str) -> bool:
        """True where the function has an argument of this name."""
        return name in self.signature.parameters

    def with_values(self, values: Mapping[str, Any]) -> ConstructorCall:
        """The call with other values, passed as the script passed them, new ones by name."""
        positions = {name: at for at, name in enumerate(self.signature.parameters)}
        args, kwargs = list(self.args), dict(self.kwargs)
        for name, value in values.items():
            if positions[name] < len(args):
                args[positions[name]] = value
            else:
                kwargs[name] = value
        return ConstructorCall(self.signature, tuple(args), kwargs)


def first_that_works(
    function: Callable[..., Any],
    changed: ConstructorCall,
    original: ConstructorCall,
    failed: Callable[[Exception], object],
    worked: Callable[[], object] = lambda: None,
    around: AbstractContextManager[object] | None = None,
) -> Any:
    """The changed call's result, made within `around`, after which `worked` is called; after a failure, which `failed`
    gets, that of the original call, with its errors.

    The one broad guard around a call of the user's beside capture's own: the arguments are ours.
    """
    try:
        with around or nullcontext():
            result = function(*changed.args, **changed.kwargs)
    except Exception as error:
        failed(error)
    else:
        worked()
        return result
    return function(*original.args, **original.kwargs)
