"""One source to one RankTrace: the table of readers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ddprof.errors import NoUsableInput
from ddprof.model import RankTrace
from ddprof.readers.formats.chrome import read_chrome
from ddprof.readers.formats.flight_recorder import read_dump
from ddprof.readers.formats.horovod import read_horovod
from ddprof.readers.formats.kineto.trace import read_kineto
from ddprof.readers.formats.nccl_profiler import read_nccl_profiler
from ddprof.readers.formats.nsys import read_nsys
from ddprof.readers.formats.op_timeline import read_op_timeline
from ddprof.readers.formats.rpd import read_rpd
from ddprof.readers.source import Source

_READERS: Mapping[str, Callable[[Source], RankTrace]] = {
    "kineto": read_kineto,
    "nsys": read_nsys,
    "horovod": read_horovod,
    "flight_recorder": read_dump,
    "nccl_profiler": read_nccl_profiler,
    "rpd": read_rpd,
    "op_timeline": read_op_timeline,
    "tensorflow": read_chrome,
    "chrome": read_chrome,
}


def read(source: Source) -> RankTrace:
    """Read one source. Raises NoUsableInput, in one line, where nothing in it can be used."""
    reader = _READERS.get(source.format)
    if reader is None:
        raise NoUsableInput(f"{source.label}: format '{source.format}' has no reader")
    return reader(source)
