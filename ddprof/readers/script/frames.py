"""A trace's Python frames: file, line, function, and whether they are the user's code."""

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
# Code that Inductor generates, in its folder or another that was set: "ab/cab<49 characters>.py", by its digest.
_GENERATED = re.compile(r"[/\\]torchinductor_|(^|[/\\])([a-z2-7]{2})[/\\]c\2[a-z2-7]{49}\.py$")
# Hugging Face's package has the name of many a folder of the user's.
_DATASETS = re.compile(
    r"^datasets[/\\](?:arrow_|builder\.|combine\.|features[/\\]|fingerprint\.|formatting[/\\]|iterable_dataset\.|load\.|table\.|utils[/\\])"
)
# Parts of the standard library that no training runs, and whose names scripts have.
_NEVER_RUN = frozenset({"__main__", "code", "profile", "statistics", "test", "this", "token", "trace"})
_STANDARD = sys.stdlib_module_names - _NEVER_RUN
_LAUNCHER = re.compile(r"(^|[/\\])bin[/\\][^/\\]+$")  # torchrun, accelerate: scripts that installing a library made


class Frame(NamedTuple):
    """One function of the program. `file` is "" for native code; `line` then is NULL."""

    file: str
    line: int
    function: str
    is_user: bool
    is_generator: bool = False


def frame_of(name: str) -> Frame:
    """The frame that a `python_function` event is named after."""
    match = _WRITTEN.match(name)
    if match is None:
        return Frame("", NULL, _ADDRESS.sub("", name), False)
    file = match["file"]
    return Frame(file, int(match["line"]), match["function"], not is_library(file))


def is_library(file: str) -> bool:
    """True where a file belongs to Python, a launcher or an installed library rather than to the user.

    `file`: an absolute path, or one without a prefix of sys.path, of which the first part is the top-level package. A
    package on no list counts as the user's.
    """
    return is_installed(file) or _top(file) in _listed() | _STANDARD


def is_library_at(file: str, short: str) -> bool:
    """`is_library` with a known absolute path (`short`: without its sys.path prefix): the standard library is where
    Python was installed, so a script with one of its names elsewhere is the user's.
    """
    return is_installed(file) or is_installed(short) or _top(short) in _listed()


def is_installed(file: str) -> bool:
    """True where a path is inside Python's installation or site-packages, or torch.compile generated it."""
    patterns = (_INSTALLED.search(file), _LAUNCHER.search(file), _DATASETS.match(file), _GENERATED.search(file))
    return file.startswith("<") or any(patterns)


def _top(file: str) -> str:
    """The top-level module of a path without a prefix of sys.path."""
    return re.split(r"[/\\]", file, maxsplit=1)[0].removesuffix(".py")


@lru_cache(maxsize=1)
def _listed() -> frozenset[str]:
    text = (files("ddprof.readers.script") / "libraries.txt").read_text(encoding="utf-8")
    return frozenset(line for line in text.splitlines() if line and not line.startswith("#"))
