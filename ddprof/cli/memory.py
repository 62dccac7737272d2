"""`ddprof memory`: what the peak of a memory snapshot is made of."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click

from ddprof.cli.load import say, tell
from ddprof.cli.output import chosen_format, write_file
from ddprof.errors import NoUsableInput

_FORMAT = "memory_snapshot"
FORMATS = ("text", "json", "html")


@click.command("memory")
@click.argument("paths", nargs=-1, required=True, metavar="SNAPSHOT...")
@click.option("--format", "form", type=click.Choice(FORMATS), help="Default: text, or what the suffix of -o means.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write to this file, not to stdout."
)
def command(paths: tuple[str, ...], form: str | None, output: Path | None) -> None:
    """Say what the memory of a device is spent on at its peak: by category and by line of the script.

    SNAPSHOT is a pickle of torch.cuda.memory._dump_snapshot(), one of each rank, or a folder or archive of them.

    \b
    ddprof memory snapshot.pickle
    ddprof memory snapshots/ --format json -o memory.json
    ddprof memory snapshot.pickle -o memory.html
    """
    answer(paths, chosen_format(form, output), output)


def answer(paths: Sequence[str], form: str, output: Path | None) -> None:
    """Print or write what the snapshots under `paths` say. Raises NoUsableInput where there is none."""
    from ddprof.analyzers.allocations.explain import explain
    from ddprof.readers.admission.discover import files_of
    from ddprof.readers.formats.memory_snapshot.content import read_snapshot

    sources = files_of(paths, _FORMAT)
    if not sources:
        raise NoUsableInput(f"{', '.join(paths)}: no memory snapshot of torch.cuda.memory._dump_snapshot found")
    told = [
        explain(read_snapshot(source)) for source in sources
    ]  # one at a time: a snapshot is larger than what it says
    if form == "json":
        from ddprof.report.memory.document import memory_document

        text = json.dumps(memory_document(told), indent=1) + "\n"
    elif form == "html":
        from ddprof.dashboard.onefile.memory import render_memory_page

        text = render_memory_page(told)
    else:
        from ddprof.report.memory.text import render_memory

        text = render_memory(told)
    if output is None:
        tell(text)
    else:
        write_file(output, text)
        say(f"wrote {output}")


def are_snapshots(paths: Sequence[str]) -> bool:
    """Whether all are files, and each a memory snapshot: what has no steps and is answered nevertheless."""
    from ddprof.readers.admission.discover import files_of

    files = [path for path in paths if Path(path).is_file()]
    return (
        len(files) == len(paths)
        and all(_begins_as_pickle(path) for path in files)
        and (len(files_of(files, _FORMAT)) == len(files))
    )


def _begins_as_pickle(path: str) -> bool:
    """Whether a file begins so; what cannot be opened is told by whoever reads it."""
    try:
        with open(path, "rb") as stored:
            return stored.read(1) == b"\x80"
    except OSError:
        return False
