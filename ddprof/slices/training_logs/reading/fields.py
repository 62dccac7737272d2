"""Key-value pairs of a log line: "key: value | key: value", or with "=", as in lines of iterations and timers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddprof.readers.numbers import one_float

_FIELD = re.compile(r"\s*(?P<key>[^|:=]{1,80}?)\s*[:=]\s*(?P<value>[^|]{1,200}?)\s*(?:\||$)")
_PLAIN = re.compile(r"[\s_()/]+")


def fields(text: str) -> Iterator[tuple[str, str]]:
    """(key, value) of every field; keys in lower case, without white space, brackets, slashes and underscores."""
    for found in _FIELD.finditer(text):
        yield _PLAIN.sub("", found["key"]).lower(), found["value"]


def number(value: str | None) -> float | None:
    """The number in a value, or before its slash ("6210.4/6200.3": of this iteration / mean)."""
    return None if value is None else one_float(value.split("/", 1)[0])
