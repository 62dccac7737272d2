"""A slice of somebody else: one command and one format, in a package of its own."""

from typing import Any

import click
import numpy as np

from ddprof.model import Device, Identity, Kind, RankTrace
from ddprof.readers.columns.event_columns import EventColumns
from ddprof.readers.columns.finish import finish
from ddprof.readers.files.opening import open_file
from ddprof.readers.format import Format
from ddprof.readers.source import Source
from ddprof.slice import Command, Slice

MAGIC = b"# toy trace\n"
TOY = Command(__name__, "Write a toy trace.", "Share and automate")
SLICE = Slice("toy", commands={"toy": TOY}, formats=(__name__,))


@click.command("toy")
@click.argument("path")
@click.option("--steps", default=4)
def command(path: str, steps: int) -> None:
    """Write PATH: in each step of 10 ms a kernel of 8 ms."""
    with open(path, "wb") as file:
        file.write(MAGIC)
        for step in range(steps):
            start = 10_000_000 * step
            file.write(b"step,%d,10000000,ProfilerStep#%d\n" % (start, step))
            file.write(b"kernel,%d,8000000,toy_gemm\n" % (start + 1_000_000))
    click.echo(f"wrote {path}")


def _read(source: Source) -> RankTrace:
    with open_file(source.path) as file:
        rows = [line.split(",") for line in file.read().decode().splitlines()[1:]]
    columns = EventColumns()
    kinds = np.array([Kind.KERNEL if row[0] == "kernel" else Kind.ANNOTATION for row in rows], np.uint8)
    tracks: list[tuple[Any, Any]] = [("GPU", 7) if row[0] == "kernel" else ("host", 1) for row in rows]
    start_ns, dur_ns = (np.array([int(row[at]) for row in rows], np.int64) for at in (1, 2))
    columns.append(kinds, [row[3] for row in rows], tracks, start_ns, dur_ns)
    columns.name_track("GPU", 7, "stream 7", device=0, stream=7)
    return finish(source, columns, Identity(0, "content", world_size=1, host="here"), Device("cuda"))


FORMAT = Format("toy", "a toy trace", lambda sample: sample.head.startswith(MAGIC), _read)
