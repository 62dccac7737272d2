"""Numbers and ranges of an address are read, and nothing else is."""

import pytest

from ddprof.dashboard.numbers import parse_numbers
from ddprof.errors import UsageError


@pytest.mark.parametrize(
    ("text", "found"), [("", None), ("3", {3}), ("0-2, 5", {0, 1, 2, 5}), (" 1 , 1 ", {1}), (",", None)]
)
def test_numbers_are_read(text: str, found: set[int] | None) -> None:
    numbers = parse_numbers(text)
    assert (None if numbers is None else set(numbers.below(100))) == found
    assert numbers is None or found == {n for n in range(100) if n in numbers}


@pytest.mark.parametrize("text", ["a", "3-", "-3", "5-2", "0-9999999999", "1;2"])
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_numbers(text)
