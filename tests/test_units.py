"""What people read: never an exponent, and the unit changes where rounding says so."""

from __future__ import annotations

import pytest

from ddprof.units import format_bytes, format_range, format_us


@pytest.mark.parametrize(
    ("value_us", "words"),
    [(0.4, "0.4 µs"), (999.4, "999 µs"), (999.6, "1 ms"), (999_700, "1 s"), (12_345, "12.3 ms"), (4.2e9, "4200 s")],
)
def test_times(value_us: float, words: str) -> None:
    assert format_us(value_us) == words


@pytest.mark.parametrize(
    ("size_bytes", "words"), [(5, "5 B"), (1023 * 1024, "1023 KiB"), (25 * 2**20, "25 MiB"), (3 * 2**50, "3072 TiB")]
)
def test_sizes(size_bytes: float, words: str) -> None:
    assert format_bytes(size_bytes) == words


@pytest.mark.parametrize(
    ("range_us", "words"),
    [
        ((4200.0, 3000.0, 5100.0), "4.2 ms (3 to 5.1 ms)"),
        ((1100.0, 900.0, 1300.0), "1.1 ms (900 µs to 1.3 ms)"),
        ((0.0, 0.0, 0.0), "0 µs"),
    ],
)
def test_a_range_says_its_unit_once(range_us: tuple[float, float, float], words: str) -> None:
    assert format_range(*range_us) == words
