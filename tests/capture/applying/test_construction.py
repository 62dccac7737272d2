"""Calls with other arguments."""

import inspect
from typing import Any
from unittest.mock import Mock

import pytest

from ddprof.capture.applying.construction import ConstructorCall, first_that_works


def made(first: int, second: int = 2, *, third: int = 3) -> tuple[int, int, int]:
    """Refuses a negative third."""
    if third < 0:
        raise ValueError("negative")
    return first, second, third


def _call(*args: Any, **kwargs: Any) -> ConstructorCall:
    return ConstructorCall(inspect.signature(made), args, kwargs)


def test_a_value_goes_where_the_script_gave_it_and_what_raises_is_made_as_it_was() -> None:
    changed = _call(1, 5).with_values({"second": 7, "third": 8})
    assert (changed.args, dict(changed.kwargs)) == ((1, 7), {"third": 8})
    assert _call(1, 5).arguments() == {"first": 1, "second": 5, "third": 3} and _call().arguments() is None
    assert _call(1).takes("third") and not _call(1).takes("fourth")
    errors: list[Exception] = []
    call = _call(1)
    assert first_that_works(made, call.with_values({"third": -1}), call, errors.append) == (1, 2, 3)
    assert [str(error) for error in errors] == ["negative"]
    with pytest.raises(ValueError, match="negative"):
        first_that_works(made, _call(1, third=-2), _call(1, third=-1), errors.append)
    with pytest.raises(KeyboardInterrupt):
        first_that_works(Mock(side_effect=KeyboardInterrupt), call, call, errors.append)
