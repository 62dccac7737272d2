"""Redaction of sentences: numbers and the words of ddprof's own texts are public, everything else is hidden.

A report's sentences are ddprof's, with names from the run in them. Any other word is taken for such a name, so that
text of a new rule or a foreign file is hidden by default.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from itertools import pairwise

from ddprof.report.redaction.names import is_public

# Words joined by signs are one thing: all-reduce, torch.compile, GB/s; a name of a host or a file is one too.
COMPOUND = re.compile(r"[\w$\u0080-\U0010ffff]+(?:[-./\\@+~]+[\w$\u0080-\U0010ffff]+)*")
JOINT = re.compile(r"[-./\\@+~]+")
_SIGNS = re.compile(r"[×·±→←–—…µ≥≤≈²°◀▶✓•“”‘’ −]+")
_SLASHED = ("/", "\\")
# Of these pairs and triples a slash makes no path: GB/s, host/device, checkpoint/logging.
_PAIRED = frozenset({
    "host", "device", "read", "write", "send", "recv", "forward", "backward", "input", "output", "start", "end", "step",
    "steps", "rank", "sample", "samples", "checkpoint", "logging", "calls", "bytes", "n", "CPU", "GPU", "I", "O", "s",
    "us", "ms", "ns", "B", "KB", "MB", "GB", "TB", "KiB", "MiB", "GiB", "TiB", "GFLOP", "TFLOP",
})  # fmt: skip
_SUFFIXES = frozenset({
    "py", "json", "gz", "pt", "pth", "zip", "tar", "sqlite", "pickle", "pkl", "yaml", "yml", "toml", "parquet", "html",
    "txt", "log", "jsonl", "csv", "bin", "sh", "so", "local", "internal", "com", "net", "org", "io", "lan",
})  # fmt: skip
# A line of a script as findings name it: train.py:88 evaluate(). All of it is hidden but for the line's number, even
# where file or function are words of ddprof's own.
_SCRIPT_LINE = re.compile(
    r"(?<![^\s,;:])(?P<file>[^\s,;:]+):(?P<line>\d+) (?P<function><\w+>|[\w.$\u0080-\U0010ffff]+(?=\(\)))"
)
_NETWORK = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}")  # an IPv4 address
_NUMBER = re.compile(r"\d{1,15}(?:e\d{1,3})?")
_MEASURE = re.compile(r"\d{1,9}(?:x|×|ns|µs|us|ms|s|min|h|B|[KMGT]i?B|[KMGT]Hz|[MGT]FLOPs?|GT|Gb|k|W|C|V)")


def hidden(text: str, alias: Callable[[str], str]) -> str:
    """The text with everything except numbers and ddprof's words replaced by its alias."""
    return COMPOUND.sub(lambda m: m.group() if _is_plain(m.group()) else alias(m.group()), text)


def lines_hidden(text: str, alias: Callable[[str, str], str]) -> str:
    """The text with files and functions of the user's script replaced by `alias(kind, name)`."""

    def hide(match: re.Match[str]) -> str:
        file, function = match["file"], match["function"]
        name = function if function.startswith("<") else alias("function", function)
        return f"{alias('file', file)}:{match['line']} {name}"

    return _SCRIPT_LINE.sub(hide, text)


def kind_of(compound: str) -> str:
    """The kind of a compound: a path, a file, an address, or another name."""
    if any(slash in compound for slash in _SLASHED):
        return "path"
    if "@" in compound or _NETWORK.fullmatch(compound):
        return "address"
    return "file" if compound.rpartition(".")[2].lower() in _SUFFIXES and "." in compound else "name"


def _is_plain(compound: str) -> bool:
    if compound.lower() in _vocabulary():
        return True
    kind = kind_of(compound)
    if kind != "name":
        parts = compound.split("/")
        return kind == "path" and all(part in _PAIRED or part.replace(".", "").isdecimal() for part in parts)
    pieces = [piece for part in JOINT.split(compound) for piece in _SIGNS.split(part) if piece]
    numbers = [bool(_NUMBER.fullmatch(piece) or _MEASURE.fullmatch(piece)) for piece in pieces]
    if all(numbers):
        return True
    # A number behind a word, as in rank-3 or kernel.17, makes a name of it; before a word it counts: 4-way, 16-bit.
    if any(later and not before for before, later in pairwise(numbers)):
        return False
    words = (piece for piece, number in zip(pieces, numbers, strict=True) if not number)
    return all(word.lower() in _vocabulary() or is_public(word) for word in words)


@cache
def _vocabulary() -> frozenset[str]:
    """Words and compounds of ddprof's texts in lower case, as collected by `.ci/prose_words.py`."""
    words = files("ddprof.report.redaction").joinpath("prose_words.txt").read_text("utf-8")
    return frozenset(words.splitlines())
