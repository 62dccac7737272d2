"""What a Python frame of a trace is: file, line, function, and whether it is the user's own code."""

from __future__ import annotations

import re
import sys
from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple

from ddprof.tables import NULL

# As Kineto writes it: the file without any prefix of sys.path, the line on which the function is defined (of a
# function that already ran when the profiler started: the line it was in), the function.
_WRITTEN = re.compile(r"^(?P<file>.+?)\((?P<line>\d{1,9})\): (?P<function>.+)$", re.DOTALL)
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")  # of an object: another one in every call, and no name
_INSTALLED = re.compile(r"(^|[/\\])(site-packages|dist-packages)[/\\]|[/\\]lib[/\\]python\d")
# Hugging Face's package has the name of many a folder of the user's.
_DATASETS = re.compile(
    r"^datasets[/\\](?:arrow_|builder\.|combine\.|features[/\\]|fingerprint\.|formatting[/\\]|iterable_dataset\.|load\.|table\.|utils[/\\])"
)
# Parts of the standard library that no training runs, and whose names scripts have.
_NEVER_RUN = frozenset({"__main__", "code", "profile", "statistics", "test", "this", "token", "trace"})
_LAUNCHER = re.compile(r"(^|[/\\])bin[/\\][^/\\]+$")  # torchrun, accelerate: scripts that installing a library made


class Frame(NamedTuple):
    """One function of the program. `file` is "" for what is not written in Python; `line` then is NULL."""

    file: str
    line: int
    function: str
    is_user: bool


def frame_of(name: str) -> Frame:
    """The frame that a `python_function` event is named after."""
    found = _WRITTEN.match(name)
    if found is None:
        return Frame("", NULL, _ADDRESS.sub("", name), False)
    file = found["file"]
    return Frame(file, int(found["line"]), found["function"], not is_library(file))


def is_library(file: str) -> bool:
    """Whether a file belongs to Python, to a launcher or to an installed library rather than to the user.

    `file`: an absolute path, or one without a prefix of sys.path, of which the first part is the top-level package. A
    package that no list holds counts as the user's.
    """
    if file.startswith("<") or _INSTALLED.search(file) or _LAUNCHER.search(file) or _DATASETS.match(file):
        return True
    top = re.split(r"[/\\]", file, maxsplit=1)[0]
    return top.removesuffix(".py") in _libraries()


@lru_cache(maxsize=1)
def _libraries() -> frozenset[str]:
    text = (files("ddprof.readers.script") / "libraries.txt").read_text(encoding="utf-8")
    listed = {line for line in text.splitlines() if line and not line.startswith("#")}
    return frozenset(listed | (sys.stdlib_module_names - _NEVER_RUN))
