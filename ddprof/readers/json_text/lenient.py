"""One JSON object that a strict decoder refuses: what of it is no JSON reads as missing, all else as it stands."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any

_LONGEST_INTEGER = 40  # digits; 64 bits have 19. Python takes quadratic time to read longer ones
_LONGEST_FRACTION = 400  # characters; float64 written out has 324 at most
_ESCAPE = re.compile(
    r"(?P<pair>\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|\\u[dD][89a-fA-F]..|\\.", re.S
)


def lenient_object(text: bytes) -> tuple[dict[str, Any], bool]:
    """The object, and whether bytes that are not UTF-8 had to be replaced. Fractions are Decimal.

    NaN, infinities and integers of no believable length are None; control characters in strings stay; halves of
    surrogate pairs are replaced, as they cannot be written to any file. Raises ValueError where it is no object.
    """
    try:
        chars, is_replaced = text.decode(), False
    except UnicodeDecodeError:
        chars, is_replaced = text.decode("utf-8", "replace"), True
    if "\\u" in chars:
        chars = _ESCAPE.sub(_whole_character, chars)
    try:
        value = _PARSER.decode(chars)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(value, dict):
        raise ValueError("no object")
    return value, is_replaced


def _whole_character(found: re.Match[str]) -> str:
    escape = found[0]
    return escape if found["pair"] or len(escape) < 3 else "\\ufffd"


def _integer(digits: str) -> int | None:
    return int(digits) if len(digits) <= _LONGEST_INTEGER else None


def _fraction(digits: str) -> Decimal | None:
    return Decimal(digits) if len(digits) <= _LONGEST_FRACTION else None


_PARSER = json.JSONDecoder(strict=False, parse_int=_integer, parse_float=_fraction, parse_constant=lambda _: None)
