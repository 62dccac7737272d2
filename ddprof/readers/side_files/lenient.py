"""Typed values from untrusted JSON files, values of another type left out and named; the files beside a rank's trace so
typed: its sidecar (docs/run-folder.md) and the flight recorder's dump.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from ddprof.errors import NoUsableInput
from ddprof.flight_recorder import Dump, Recorded, RecordedGroup
from ddprof.model import HealthNote
from ddprof.readers.files.opening import one_line, open_file
from ddprof.readers.files.safe_pickle import UnsafePickle, load_plain
from ddprof.readers.files.streams import read_small
from ddprof.readers.numbers import one_rank
from ddprof.sidecar import Sidecar, Whole
from ddprof.units import format_count

S = TypeVar("S", bound=msgspec.Struct)
_RANKS = msgspec.json.Decoder(tuple[Whole, ...])
_UNFIT = object()
_SHOWN = 3  # places named in one note
MAX_UNFIT = 10_000  # values: what holds more of them is no file of this kind
MAX_REPAIRED_BYTES = 8 << 20  # of text with NaN or halves of characters, which takes 30 times its size to make sound


def parse(content: bytes, kind: type[S]) -> tuple[S, list[str]]:
    """The value of a JSON object as `kind`, and the paths of values of another type ("gc[3].dur_ns").

    Keys that `kind` does not know are ignored; null counts as absent. Raises ValueError where the text is no JSON, or
    nests too deep, TypeError where it is no object.
    """
    try:
        try:
            return msgspec.json.decode(content, type=kind), []
        except (msgspec.DecodeError, UnicodeDecodeError):
            return typed(_plain(content), kind)
    except RecursionError as error:
        raise ValueError("JSON that nests too deep") from error


def typed(value: Any, kind: type[S]) -> tuple[S, list[str]]:
    """Plain values as `kind`, as in `parse`. Raises TypeError where they are not a dict."""
    if not isinstance(value, dict):
        raise TypeError("not a JSON object")
    unfit: list[str] = []
    return _fitting({key: given for key, given in value.items() if given is not None}, kind, "", unfit), unfit


def unfit_note(path: str, unfit: Sequence[str]) -> list[HealthNote]:
    """A note on the values left out of a file."""
    if not unfit:
        return []
    more = f" and {len(unfit) - _SHOWN} more" if len(unfit) > _SHOWN else ""
    issue = f"{path}: {', '.join(unfit[:_SHOWN])}{more} not of the type documented"
    return [HealthNote(issue, "taken as not recorded", "info")]


def read_lines(path: str, take: Callable[[bytes], None], most_bytes: int, effect: str) -> list[HealthNote]:
    """Give the lines of a file of JSON lines to `take`; notes on those that it could not decode, and on a longer file.

    Raises errors of UNREADABLE, those of `take` among them.
    """
    broken = 0
    with open_file(path) as stream:
        lines, more = stream.read(most_bytes).splitlines(), bool(stream.read(1))
    for line in lines:
        try:
            take(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            broken += 1
    notes = [HealthNote(f"{path}: {format_count(broken, 'unreadable line')}", effect, "info")] if broken else []
    if more:
        notes.append(HealthNote(f"{path}: only its first {most_bytes >> 20} MiB are read", effect))
    return notes


def _plain(content: bytes) -> Any:
    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        if len(content) > MAX_REPAIRED_BYTES:
            raise
        value = json.loads(content)  # takes NaN and halves of surrogate pairs, which cannot be written to any file
        return json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


def _fitting(value: Any, kind: Any, path: str, unfit: list[str]) -> Any:
    """A value whole where it fits its type (in C), else part by part; _UNFIT where nothing fits."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        parts = _parts(value, kind, path, unfit)
    if parts is _UNFIT:
        unfit.append(path)
        if len(unfit) > MAX_UNFIT:
            raise ValueError(f"more than {MAX_UNFIT} values are not of the type documented")
    return parts


def _parts(value: Any, kind: Any, path: str, unfit: list[str]) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        kinds = [argument for argument in arguments if argument is not type(None)]
        return _parts(value, kinds[0], path, unfit)
    if origin is tuple and isinstance(value, list):
        items = [_fitting(item, arguments[0], f"{path}[{at}]", unfit) for at, item in enumerate(value)]
        return tuple(item for item in items if item is not _UNFIT)
    if origin is dict and isinstance(value, dict):
        entries = {key: _fitting(item, arguments[1], f"{path}.{key}", unfit) for key, item in value.items()}
        return {key: item for key, item in entries.items() if item is not _UNFIT}
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and isinstance(value, dict):
        return _struct(value, kind, path, unfit)
    return _UNFIT


def _struct(value: dict[str, Any], kind: type[msgspec.Struct], path: str, unfit: list[str]) -> Any:
    kinds, dot = _kinds(kind), "." if path else ""
    given = {
        field.name: _fitting(value[field.encode_name], kinds[field.name], f"{path}{dot}{field.encode_name}", unfit)
        for field in msgspec.structs.fields(kind)
        if value.get(field.encode_name) is not None
    }
    try:
        return kind(**{name: part for name, part in given.items() if part is not _UNFIT})
    except TypeError:  # it cannot do without one of those that are missing
        return _UNFIT


@lru_cache(maxsize=64)  # more structs than any file has
def _kinds(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


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
        dump, unfit = load_dump(read_small(path))
    except (ValueError, TypeError, NoUsableInput, UnsafePickle) as error:
        effect = "collectives are matched by order where the trace has no sequence numbers"
        return (), [HealthNote(f"{path}: not usable ({one_line(error)})", effect)]
    return dump.entries, unfit_note(path, unfit)


def load_dump(content: bytes) -> tuple[Dump, list[str]]:
    """A dump (JSON, or a plain pickle), and its parts of a wrong type. Raises ValueError, TypeError or UnsafePickle."""
    return parse(content, Dump) if content.lstrip()[:1] == b"{" else typed(load_plain(content), Dump)


def ranks_of(group: RecordedGroup) -> tuple[int, ...] | None:
    """The ranks of a group in a dump's configuration; None where an entry is not a rank."""
    try:
        given = _RANKS.decode(group.ranks) if isinstance(group.ranks, str) else group.ranks or ()
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):  # a text of a pickle may be no UTF-8
        return None
    believed = tuple(rank for rank in map(one_rank, given) if rank is not None)
    return believed if len(believed) == len(given) else None
