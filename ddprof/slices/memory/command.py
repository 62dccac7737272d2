"""`ddprof memory`: composition of a memory snapshot's peak."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from ddprof.cli.output import chosen_format, output_options, put
from ddprof.dashboard.assets import joined
from ddprof.dashboard.onefile.exhibits import exhibit_section, library
from ddprof.errors import NoUsableInput
from ddprof.readers.admission.discover import files_of
from ddprof.readers.source import Source
from ddprof.report.html.markup import Markup, join, tag
from ddprof.report.html.style import embedded, page
from ddprof.slices.memory.content import read_snapshot
from ddprof.slices.memory.exhibits import device_exhibits
from ddprof.slices.memory.explain import explain
from ddprof.slices.memory.format import FORMAT
from ddprof.slices.memory.model import CodeFrame, DeviceMemory, OutOfMemory, SnapshotMemory
from ddprof.slices.memory.text import render_memory

SCHEMA = "ddprof.memory/1"


@click.command("memory")
@click.argument("paths", nargs=-1, required=True, metavar="SNAPSHOT...")
@output_options("text", "json", "html")
def command(paths: tuple[str, ...], form: str | None, output: Path | None) -> None:
    """Show what occupies a device's memory at its peak: by category and by line of the script.

    SNAPSHOT is a pickle of torch.cuda.memory._dump_snapshot(), one of each rank, or a folder or archive of them.

    \b
    ddprof memory snapshot.pickle
    ddprof memory snapshots/ --format json -o memory.json
    ddprof memory snapshot.pickle -o memory.html
    """
    sources = files_of(paths, FORMAT.name)
    if not sources:
        raise NoUsableInput(f"{', '.join(paths)}: no memory snapshot of torch.cuda.memory._dump_snapshot found")
    tell_snapshots(sources, chosen_format(form, output), output)


def tell_snapshots(sources: Sequence[Source], form: str, output: Path | None) -> None:
    """Print or write the composition of each snapshot's peak."""
    # One at a time: a snapshot is larger than what it says.
    read = [explain(read_snapshot(source)) for source in sources]
    if form == "json":
        text = json.dumps(memory_document(read), indent=1) + "\n"
    elif form == "html":
        text = render_memory_page(read)
    else:
        text = render_memory(read)
    put(text, output)


def render_memory_page(files: Sequence[SnapshotMemory]) -> str:
    """A section per snapshot, each with the charts of its devices."""
    names = ", ".join(_name(file) for file in files)
    sections = [_section(file, number) for number, file in enumerate(files)]
    links = [tag("li", tag("a", _name(file), href=f"#snapshot-{number}")) for number, file in enumerate(files)]
    navigation = tag("nav", tag("ul", *links), class_="pages", aria_label="Pages") if len(files) > 1 else None
    data = join(embedded(memory_document(files)), library())
    return page(
        f"ddprof: memory of {names}",
        "Memory snapshots: no steps, so they hold no times",
        sections,
        data,
        joined(".css", "shared", "onefile"),
        joined(".js", "shared", "onefile"),
        navigation,
    )


def _section(file: SnapshotMemory, number: int) -> Markup:
    title = tag("h1", f"Memory: {_name(file)}", tabindex="-1")
    body = [exhibit_section(exhibit) for device in file.devices for exhibit in device_exhibits(device)]
    body = body or [tag("p", "Nothing was held while it was recorded.", class_="notice")]
    notes = [tag("p", f"Note: {note}.", class_="quiet") for device in file.devices for note in device.notes]
    return tag("section", title, *body, *notes, class_="page", id=f"snapshot-{number}", aria_label=_name(file))


def _name(file: SnapshotMemory) -> str:
    return file.path.replace("\\", "/").rsplit("/", 1)[-1]


def memory_document(files: Sequence[SnapshotMemory]) -> dict[str, Any]:
    """Plain dicts, lists, strings, numbers and None."""
    return {
        "schema": SCHEMA,
        "snapshots": [
            {
                "path": file.path,
                "expandable_segments": file.is_expandable,
                "devices": [_device(device) for device in file.devices],
            }
            for file in files
        ],
    }


def _device(memory: DeviceMemory) -> dict[str, Any]:
    return {
        "device": memory.device,
        "events": memory.events,
        "span_us": memory.span_us,
        "peak": {
            "at_us": memory.at_us,
            "allocated_bytes": memory.held_bytes,
            "reserved_bytes": memory.reserved_bytes,
            "fragmented_bytes": memory.trapped_bytes,
            "cached_bytes": memory.empty_bytes,
            "unknown_bytes": memory.unknown_bytes,
            "categories": [
                {
                    "category": share.category,
                    "decided_by": share.how,
                    "bytes": share.size_bytes,
                    "blocks": share.blocks,
                    "is_known": share.is_known,
                }
                for share in memory.shares
            ],
            "lines": [
                {**_frame(line.frame), "bytes": line.size_bytes, "blocks": line.blocks, "mostly": line.category}
                for line in memory.lines
            ],
            "other_lines_bytes": memory.lineless_bytes,
        },
        "peak_reserved_bytes": memory.most_reserved_bytes,
        "out_of_memory": [_failure(failure) for failure in memory.out_of_memory],
        "curve": {
            "at_us": list(memory.curve.at_us),
            "allocated_bytes": list(memory.curve.held_bytes),
            "reserved_bytes": list(memory.curve.reserved_bytes),
        },
        "advice": list(memory.advice),
        "notes": list(memory.notes),
    }


def _frame(frame: CodeFrame) -> dict[str, Any]:
    return {"file": frame.file or None, "line": frame.line or None, "function": frame.function}


def _failure(failure: OutOfMemory) -> dict[str, Any]:
    plain = asdict(failure)
    frame = plain.pop("frame")
    names = {"held_bytes": "allocated_bytes", "trapped_bytes": "fragmented_bytes"}
    renamed = {names.get(name, name): value for name, value in plain.items()}
    return {**renamed, "at_line": None if frame is None or failure.frame is None else _frame(failure.frame)}
