"""Numbers and ranges of an address are read, and nothing else is."""

import pytest

from ddprof.dashboard.numbers import parse_numbers
from ddprof.errors import UsageError

READ = [("", None), ("3", {3}), ("0-2, 5", {0, 1, 2, 5}), (" 1 , 1 ", {1}), (",", None)]


@pytest.mark.parametrize(("text", "found"), READ)
def test_numbers_are_read(text: str, found: set[int] | None) -> None:
    numbers = parse_numbers(text)
    assert (None if numbers is None else set(numbers.below(100))) == found
    assert numbers is None or found == {n for n in range(100) if n in numbers}
    for wrong in ("a", "3-", "-3", "5-2", "0-9999999999", "1;2"):
        with pytest.raises(UsageError):
            parse_numbers(f"{text},{wrong}")
