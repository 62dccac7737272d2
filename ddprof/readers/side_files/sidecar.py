"""Typed files beside a rank's trace: its sidecar (docs/run-folder.md) and the flight recorder's dump."""

from __future__ import annotations

from ddprof.errors import NoUsableInput
from ddprof.flight_recorder import Dump, Recorded
from ddprof.model import HealthNote
from ddprof.readers.files.opening import one_line
from ddprof.readers.files.safe_pickle import UnsafePickle, load_plain
from ddprof.readers.files.streams import read_small
from ddprof.readers.side_files.lenient import S, parse, typed, unfit_note
from ddprof.sidecar import Sidecar


def read_sidecar(path: str | None) -> tuple[Sidecar, list[HealthNote]]:
    """The rank's sidecar with notes; an empty one and a note where the file cannot be used."""
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


def read_flight_recorder(path: str | None) -> tuple[tuple[Recorded, ...], list[HealthNote]]:
    """The entries of a dump; () and a note where the file cannot be used."""
    if path is None:
        return (), []
    try:
        dump, unfit = load_dump(read_small(path), Dump)
    except (ValueError, TypeError, NoUsableInput, UnsafePickle) as error:
        effect = "collectives are matched by order where the trace has no sequence numbers"
        return (), [HealthNote(f"{path}: not usable ({one_line(error)})", effect)]
    return dump.entries, unfit_note(path, unfit)


def load_dump(content: bytes, kind: type[S]) -> tuple[S, list[str]]:
    """A dump (JSON, or a plain pickle), and its parts of a wrong type. Raises ValueError, TypeError or UnsafePickle."""
    return parse(content, kind) if content.lstrip()[:1] == b"{" else typed(load_plain(content), kind)
