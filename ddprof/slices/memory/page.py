"""What memory snapshots say as one self-contained HTML file."""

from __future__ import annotations

from collections.abc import Sequence

from ddprof.dashboard.assets import joined
from ddprof.dashboard.onefile.exhibits import exhibit_section, library
from ddprof.report.html.markup import Markup, join, tag
from ddprof.report.html.page import embedded, page
from ddprof.slices.memory.document import memory_document
from ddprof.slices.memory.exhibits import device_exhibits
from ddprof.slices.memory.model import SnapshotMemory


def render_memory_page(files: Sequence[SnapshotMemory]) -> str:
    """A section per snapshot, each with the charts of its devices."""
    names = ", ".join(_name(file) for file in files)
    sections = [_section(file, number) for number, file in enumerate(files)]
    links = [tag("li", tag("a", _name(file), href=f"#snapshot-{number}")) for number, file in enumerate(files)]
    navigation = tag("nav", tag("ul", *links), class_="pages", aria_label="Pages") if len(files) > 1 else None
    data = join(embedded(memory_document(files)), library())
    return page(
        f"ddprof: memory of {names}",
        "Memory snapshots: no steps, so nothing is said of time",
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
