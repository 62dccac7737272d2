"""What a job was started by, as the manifest of its run folder has it (docs/run-folder.md)."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from ddprof.errors import NoUsableInput
from ddprof.readers.companions.lenient import parse
from ddprof.readers.files.streams import read_small


class Launch(Struct, frozen=True):
    """Of a manifest: the command, quoted as a shell takes it, and the folder that it was started in."""

    command: str = ""
    cwd: str = ""


def launch_of(manifests: Iterable[str]) -> Launch | None:
    """How the job of these manifests was started; None where that is not one command: every node had its own."""
    found = sorted(set(manifests))
    if len(found) != 1:
        return None
    try:
        launch = parse(read_small(found[0]), Launch)[0]
    except (OSError, ValueError, TypeError, NoUsableInput):
        return None
    return launch if launch.command else None
