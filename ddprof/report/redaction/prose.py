"""Which words of a sentence are public: those of ddprof's own texts, which anybody can read, and numbers.

A report's sentences are ddprof's, with names from the run in them. Whatever is not one of ddprof's words is taken for
such a name: what a new rule or a stranger's file puts into a sentence is hidden without anybody having thought of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

from ddprof.report.redaction.names import is_public

# Packages whose texts stand in reports, and what of the files is text: a string within a line, a table of GPUs.
PACKAGES = (
    *("ddprof.analyzers", "ddprof.readers", "ddprof.report", "ddprof.slices"),
    *("ddprof.dashboard.exhibits", "ddprof.dashboard.onefile", "ddprof.dashboard.timeline"),
)
BASIS = "ddprof"  # of this one the files at its top: causes, units, findings, tables
_STRING = re.compile(r'"([^"\n]*)"|\'([^\'\n]*)\'')
_PRIVATE = Path(__file__).parent  # the words of redaction itself are in no sentence of a report
_UNREPORTED = re.compile(r"ddprof/slices/(?:trackers/|tuning/|\w+/\w*command)")  # what only commands print or send
_NEVER = frozenset({"secret", "secrets", "private", "password", "passwd", "credential", "credentials", "hidden_size"})

# Words joined by signs are one thing: all-reduce, torch.compile, GB/s; a name of a host or a file is one too.
_COMPOUND = re.compile(r"[\w$\u0080-\U0010ffff]+(?:[-./\\@+~]+[\w$\u0080-\U0010ffff]+)*")
_JOINT = re.compile(r"[-./\\@+~]+")
_SIGNS = re.compile(r"[×·±→←–—…µ≥≤≈²°◀▶✓•“”‘’ −]+")
_SLASHED = ("/", "\\")
# Of these pairs and triples a slash makes no path: GB/s, host/device, checkpoint/logging.
_PAIRED = frozenset(
    {"host", "device", "read", "write", "send", "recv", "forward", "backward", "input", "output", "start", "end", "CPU"}
    | {
        "GPU",
        "I",
        "O",
        "s",
        "step",
        "steps",
        "rank",
        "sample",
        "samples",
        "us",
        "ms",
        "ns",
        "B",
        "KB",
        "MB",
        "GB",
        "TB",
    }
    | {"checkpoint", "logging", "calls", "bytes", "n", "KiB", "MiB", "GiB", "TiB", "GFLOP", "TFLOP"}
)
_SUFFIXES = frozenset(
    {"py", "json", "gz", "pt", "pth", "zip", "tar", "sqlite", "pickle", "pkl", "yaml", "yml", "toml", "parquet", "html"}
    | {"txt", "log", "jsonl", "csv", "bin", "sh", "so", "local", "internal", "com", "net", "org", "io", "lan"}
)
# A line of a script as findings name it: train.py:88 evaluate(). All of it is hidden but for the line's number, even
# where file or function are words of ddprof's own.
_SCRIPT_LINE = re.compile(
    r"(?<![^\s,;:])(?P<file>[^\s,;:]+):(?P<line>\d+) (?P<function><\w+>|[\w.$\u0080-\U0010ffff]+(?=\(\)))"
)
_NETWORK = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}")  # an IPv4 address
_NUMBER = re.compile(r"\d{1,15}(?:e\d{1,3})?")
_MEASURE = re.compile(r"\d{1,9}(?:x|×|ns|µs|us|ms|s|min|h|B|[KMGT]i?B|[KMGT]Hz|[MGT]FLOPs?|GT|Gb|k|W|C|V)")


def hidden(text: str, alias: Callable[[str], str]) -> str:
    """The text with everything in it that is neither a number nor a word of ddprof's replaced by its alias."""
    return _COMPOUND.sub(lambda m: m.group() if _is_plain(m.group()) else alias(m.group()), text)


def lines_hidden(text: str, alias: Callable[[str, str], str]) -> str:
    """The text with files and functions of the user's script replaced by their aliases; `alias`: of (kind, name)."""

    def hide(found: re.Match[str]) -> str:
        file, function = found["file"], found["function"]
        name = function if function.startswith("<") else alias("function", function)
        return f"{alias('file', file)}:{found['line']} {name}"

    return _SCRIPT_LINE.sub(hide, text)


def kind_of(compound: str) -> str:
    """What a compound looks like: a path, a file, an address, or any other name."""
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
    pieces = [piece for part in _JOINT.split(compound) for piece in _SIGNS.split(part) if piece]
    numbers = [_is_number(piece) for piece in pieces]
    if all(numbers):
        return True
    # A number behind a word, as in rank-3 or kernel.17, makes a name of it; before a word it counts: 4-way, 16-bit.
    if any(later and not before for before, later in pairwise(numbers)):
        return False
    return all(number or _is_word(piece) for piece, number in zip(pieces, numbers, strict=True))


def _is_number(piece: str) -> bool:
    return bool(_NUMBER.fullmatch(piece) or _MEASURE.fullmatch(piece))


def _is_word(piece: str) -> bool:
    return piece.lower() in _vocabulary() or is_public(piece)


@cache
def _vocabulary() -> frozenset[str]:
    """Words and compounds of the texts in ddprof's sources, in lower case."""
    found: set[str] = set()
    for text in _texts():
        for compound in _COMPOUND.findall(text.lower()):
            found.add(compound)
            found.update(_JOINT.split(compound))
    return frozenset(found) - _NEVER


def _texts() -> Iterator[str]:
    for file in _files():
        source = file.read_text(encoding="utf-8")
        if file.suffix == ".toml":
            yield source
        elif _PRIVATE not in file.parents and not _UNREPORTED.search(file.as_posix()):
            yield from (m.group(1) or m.group(2) or "" for m in _STRING.finditer(source))


def _files() -> Iterator[Path]:
    """Sources of the installed packages; without sources nothing is known to be public, and everything is hidden."""
    for package in (BASIS, *PACKAGES):
        spec = find_spec(package)
        for folder in map(Path, (spec.submodule_search_locations or ()) if spec else ()):
            yield from sorted(folder.glob("*.toml"))
            yield from sorted(folder.glob("*.py") if package == BASIS else folder.rglob("*.py"))
