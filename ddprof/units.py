"""The only module that formats times, bytes and rates for people."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile

MIB = 2**20  # bytes
MAX_RANGES = 64  # of ranks, in one list: more are no reading matter
_MOST_CHARS = 60  # of a name from a trace
_NOISE = re.compile(r"^void |\b(?:at::native::|at::cuda::|c10::|std::)|\(anonymous namespace\)::")
_LAST_WORD = re.compile(r"\w*$")
ROUNDS_UP = 0.9995  # of the next unit: 999.6 µs is 1 ms


def format_us(value_us: float) -> str:
    """Microseconds with three significant digits in the customary unit."""
    magnitude = abs(value_us)
    if magnitude >= ROUNDS_UP * 1e6:
        return f"{_digits(value_us / 1e6)} s"
    if magnitude >= ROUNDS_UP * 1e3:
        return f"{_digits(value_us / 1e3)} ms"
    return f"{round(value_us, 3):.3g} µs"


def format_unprofiled(before_us: float, after_us: float) -> str:
    """A step without the profiler, before and after a change."""
    return f"without the profiler {format_us(before_us)} -> {format_us(after_us)}"


def format_range(value_us: float, low_us: float, high_us: float) -> str:
    """A time with its range: "4.2 ms (3 to 5.1 ms)"; the time alone where they print alike."""
    value, between = format_us(value_us), format_between(low_us, high_us)
    return value if between == value else f"{value} ({between})"


def format_between(low_us: float, high_us: float) -> str:
    """Two times in one unit: "3 to 5.1 ms"; one time where they print alike."""
    low, high = format_us(low_us), format_us(high_us)
    (number, unit), (_, same) = low.split(), high.split()
    return low if low == high else f"{number if unit == same else low} to {high}"


def _digits(value: float) -> str:
    """Three significant digits, without an exponent for large numbers."""
    return f"{value:.0f}" if abs(value) >= 999.5 else f"{value:.3g}"


def format_share(share: float) -> str:
    """A share in [0, 1] as a percentage, without false precision."""
    percent = share * 100
    return f"{percent:.1f} %" if abs(percent) < 10 else f"{percent:.0f} %"


def format_times(factor: float) -> str:
    """A factor as "1.4x", without false precision."""
    return f"{factor:.2f}x" if factor < 10 else f"{factor:.0f}x"


def format_name(name: str, most_chars: int = _MOST_CHARS) -> str:
    """A name from the trace for people, cut with an ellipsis where it is long; JSON keeps it whole."""
    return _cut(bare_name(name), most_chars)


def format_apart(names: Sequence[str], most_chars: int) -> list[str]:
    """Bare names cut to a length: those that would look alike lose what they share, and not what tells them apart."""
    shown = [_cut(name, most_chars) for name in names]
    for alike in {text for text in shown if text.endswith("…")}:
        at = [i for i, text in enumerate(shown) if text == alike]
        columns = zip(*(names[i] for i in at), strict=False)
        shared = "".join(chars[0] for chars in takewhile(lambda chars: len({*chars}) == 1, columns))
        begin = len(_LAST_WORD.sub("", shared))  # of the first word that differs
        kept = most_chars // 3
        for i in at if len({names[i] for i in at}) > 1 else ():
            shown[i] = f"{names[i][:kept]}…{_cut(names[i][begin:], most_chars - kept - 1)}"
    return shown


def bare_name(name: str) -> str:
    """A kernel's name without its arguments and PyTorch's namespaces; any other name as it is."""
    return _NOISE.sub("", _without_arguments(name)).strip() or name


def _without_arguments(name: str) -> str:
    """The name without its last parentheses, where they close a C++ name: "void f<int>" of "void f<int>(int, long)"."""
    if not name.endswith(")") or "(" not in name:
        return name
    depth = 0
    for at in range(len(name) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(name[at], 0)
        if depth == 0:
            before = name[:at]
            return before if before and not before.endswith((" ", "::")) else name
    return name


def _cut(text: str, most_chars: int) -> str:
    return text if len(text) <= most_chars else f"{text[: most_chars - 1]}…"


def format_count(number: int, noun: str) -> str:
    """A number with its noun: "1 step", "3 steps"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def format_number(count: float) -> str:
    """A mean count: "3", or "2.5"."""
    return f"{count:.0f}" if abs(count - round(count)) < 0.05 else f"{count:.1f}"


def format_bytes(size_bytes: float) -> str:
    """Bytes in binary units."""
    value = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < ROUNDS_UP * 1024:
            return f"{_digits(value)} {unit}"
        value /= 1024
    return f"{_digits(value)} TiB"


def format_rate(bytes_per_s: float) -> str:
    """Bytes per second in decimal units, as network rates are quoted."""
    value = float(bytes_per_s)
    for unit in ("B", "kB", "MB"):
        if abs(value) < ROUNDS_UP * 1000:
            return f"{_digits(value)} {unit}/s"
        value /= 1000
    return f"{_digits(value)} GB/s"


def names_ranks(text: str, ranks: Sequence[int]) -> bool:
    """True where a text names these ranks: "rank 12" is not rank 1."""
    return re.search(rf"{format_ranks(ranks)}(?!\d)", text) is not None


def format_ranks(ranks: Sequence[int]) -> str:
    """Ranks as a short list: "rank 3", "ranks 0-3, 7"."""
    if not ranks:
        return "all ranks"
    ordered = sorted(set(ranks))
    parts: list[str] = []
    start = previous = ordered[0]
    for rank in [*ordered[1:], None]:
        if rank is not None and rank == previous + 1:
            previous = rank
            continue
        parts.append(
            str(start)
            if start == previous
            else f"{start}-{previous}"
            if previous > start + 1
            else f"{start}, {previous}"
        )
        if rank is not None:
            start = previous = rank
    if len(parts) > MAX_RANGES:
        parts = [*parts[:MAX_RANGES], f"... ({len(ordered)} in all)"]
    return ("rank " if len(ordered) == 1 else "ranks ") + ", ".join(parts)
