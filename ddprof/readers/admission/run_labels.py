"""What runs are called: by the folder that tells which run it is, not by one that only says what its files are.

A folder `traces` names none of the runs that are recorded into one. The words that say what files are, are those by
which the formats are described ("a PyTorch profiler trace", "a communication log"): no name of a run is made of them.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from functools import cache

from ddprof.readers.files.names import file_name
from ddprof.readers.formats import formats

_LEAST_STEM = 4  # letters that two forms of a word share: "profiles", "profiler"


def labels(full: Sequence[str], given: Sequence[str]) -> list[str]:
    """The label of each run: of `full`, its path below what was given, as much as tells runs; where that is nothing,
    the last telling part of `given`, the path itself. Runs that would be called alike keep their full labels.
    """
    short = [_telling(label) or _last_telling(path) for label, path in zip(full, given, strict=True)]
    alike = {label for label, count in Counter(short).items() if count > 1}
    return [one if one not in alike else path or one for one, path in zip(short, full, strict=True)]


def _last_telling(path: str) -> str:
    return file_name(_telling(path)) or file_name(path)


def _telling(path: str) -> str:
    """A path up to its last part that tells a run; "" where no part does."""
    while path and not _tells(os.path.basename(path)):
        above = os.path.dirname(path)
        path = above if above != path else ""
    return path


def _tells(name: str) -> bool:
    words = re.findall(r"[^\W\d_]+|\d+", name.lower())
    return not words or not all(any(_is_form(word, known) for known in _file_words()) for word in words)


def _is_form(word: str, other: str) -> bool:
    """Whether two words are forms of one: equal but for their endings."""
    one, two = sorted((word.removesuffix("s"), other.removesuffix("s")), key=len)
    return one == two or (len(one) >= _LEAST_STEM and two.startswith(one) and len(two) - len(one) <= 1)


@cache
def _file_words() -> frozenset[str]:
    return frozenset(re.findall(r"[a-z]{3,}", " ".join(form.what for form in formats().values()).lower()))
