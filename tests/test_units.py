"""Formatted numbers: never an exponent, and the unit changes where rounding requires it."""

from collections.abc import Callable

import pytest

from ddprof.units import format_apart, format_bytes, format_range, format_us


@pytest.mark.parametrize(
    ("format", "values", "words"),
    [
        *((format_us, us, f"{words} µs") for us, words in ((1e-5, "0"), (0.4, "0.4"), (999.4, "999"))),
        *((format_us, us, f"{words} ms") for us, words in ((999.6, "1"), (12_345, "12.3"))),
        *((format_us, us, f"{words} s") for us, words in ((999_700, "1"), (4.2e9, "4200"))),
        *((format_bytes, size, words) for size, words in ((5, "5 B"), (1023 * 1024, "1023 KiB"))),
        *((format_bytes, size, words) for size, words in ((1023.7 * 2**20, "1 GiB"), (3 * 2**50, "3072 TiB"))),
        (format_apart, (["kernel<4, add>", "kernel<4, addcmul>", "b"], 12), ["kern…add>", "kern…addcmu…", "b"]),
        (format_range, (4200.0, 3000.0, 5100.0), "4.2 ms (3 to 5.1 ms)"),  # its unit once
        (format_range, (1100.0, 900.0, 1300.0), "1.1 ms (900 µs to 1.3 ms)"),
        (format_range, (0.0, 0.0, 0.0), "0 µs"),
    ],
)
def test_times_sizes_and_ranges(format: Callable[..., str], values: float | tuple[object, ...], words: object) -> None:
    assert format(*(values if isinstance(values, tuple) else (values,))) == words
