"""The sidecar of a rank (docs/run-folder.md), typed."""

from __future__ import annotations

from ddprof.errors import NoUsableInput
from ddprof.model import HealthNote
from ddprof.readers.companions.lenient import parse, unfit_note
from ddprof.readers.files.opening import one_line
from ddprof.readers.files.streams import read_small
from ddprof.sidecar import Sidecar


def read_sidecar(path: str | None) -> tuple[Sidecar, list[HealthNote]]:
    """What our capture knows of the rank; an empty one and a note where the file cannot be used."""
    effect = "settings of this rank are unknown"
    if path is None:
        return Sidecar(), []
    try:
        sidecar, unfit = parse(read_small(path), Sidecar)
    except TypeError:
        return Sidecar(), [HealthNote(f"{path}: not a sidecar", effect)]
    except (ValueError, NoUsableInput) as error:
        return Sidecar(), [HealthNote(f"{path}: not usable ({one_line(error)})", effect)]
    return sidecar, unfit_note(path, unfit)
