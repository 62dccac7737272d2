"""How a job ended, by the manifest of its run folder (docs/run-folder.md)."""

from __future__ import annotations

import os

from msgspec import Struct

from ddprof.errors import NoUsableInput
from ddprof.readers.companions.lenient import parse
from ddprof.readers.files.remote import is_url
from ddprof.readers.files.streams import read_small
from ddprof.sidecar import Whole

_MANIFEST = "manifest.json"


class RunEnd(Struct, frozen=True):
    """Of a manifest: the exit code of the job, and what was seen of it hanging."""

    exit_code: Whole | None = None
    hang: dict[str, object] | None = None


def run_end(folder: str) -> RunEnd | None:
    """How the job of a run folder ended; None where no manifest says it."""
    manifest = os.path.join(folder, _MANIFEST)
    if not is_url(manifest) and not os.path.isfile(manifest):
        return None
    try:
        return parse(read_small(manifest), RunEnd)[0]
    except (ValueError, TypeError, NoUsableInput):
        return None
