"""One source to one RankTrace: the table of readers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ddprof.errors import NoUsableInput
from ddprof.model import RankTrace
from ddprof.readers.kineto import read_kineto
from ddprof.readers.op_timeline import read_op_timeline
from ddprof.readers.source import Source

_READERS: Mapping[str, Callable[[Source], RankTrace]] = {
    "kineto": read_kineto,
    "op_timeline": read_op_timeline,
}


def read(source: Source) -> RankTrace:
    """Read one source. Raises NoUsableInput, in one line, where nothing in it can be used."""
    reader = _READERS.get(source.format)
    if reader is None:
        raise NoUsableInput(f"{source.label}: format '{source.format}' has no reader")
    return reader(source)
