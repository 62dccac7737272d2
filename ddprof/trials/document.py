"""tune.json: the state of a tuning and, once it has ended, its answer (docs/tuning.md)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeVar

import msgspec

from ddprof.errors import NoUsableInput, UsageError
from ddprof.trials.answer import TuningAnswer
from ddprof.trials.model import SCHEMA, TuneState
from ddprof.untrusted.regular_files import read_bounded
from ddprof.untrusted.secrets import masked_data, masked_words

FILE = "tune.json"
TRIALS = "trials"  # the folder of all runs, beside it
NAME_PART = "-tune-"  # of the name of every folder of a tuning
_MAX_BYTES = 256 << 20


class TuneDocument(TuneState, kw_only=True):
    """The content of tune.json. `result`: null while the tuning goes on, or where it was ended early."""

    result: TuningAnswer | None = None


_Read = TypeVar("_Read", bound=TuneState)


def read_state(folder: Path) -> TuneState:
    """The state in a folder, to continue from. Raises NoUsableInput."""
    return _read(folder, TuneState)


def read_document(folder: Path) -> TuneDocument:
    """The state with the answer. Raises NoUsableInput."""
    return _read(folder, TuneDocument)


def write_document(state: TuneState, folder: Path, result: TuningAnswer | None = None) -> None:
    """Write a folder's document, without secrets. Raises UsageError."""
    document = msgspec.to_builtins(state)
    if result is not None:
        document["result"] = msgspec.to_builtins(result)
    document["options"]["command"] = masked_words(state.options.command)
    write_whole(folder / FILE, msgspec.json.format(msgspec.json.encode(masked_data(document)), indent=1))


def free_folder(wanted: Path) -> Path:
    """The wanted folder, with a number after its name where it is already there."""
    folder, attempt = wanted, 1
    while folder.exists():
        attempt += 1
        folder = wanted.with_name(f"{wanted.name}.{attempt}")
    return folder


def write_whole(path: Path, content: bytes) -> None:
    """Write a file, whole or not at all. Raises UsageError."""
    try:
        path.parent.parent.mkdir(parents=True, exist_ok=True)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        fresh = path.with_name(f".{path.name}.{os.getpid()}")
        fresh.touch(0o600)
        fresh.write_bytes(content)
        os.replace(fresh, path)
    except OSError as error:
        raise UsageError(f"{path}: not written: {error.strerror}") from error


def _read(folder: Path, kind: type[_Read]) -> _Read:
    path = folder / FILE
    try:
        document = msgspec.json.decode(read_bounded(path, _MAX_BYTES), type=kind)
    except OSError as error:
        raise NoUsableInput(f"{path}: {error.strerror or error}") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise NoUsableInput(f"{path}: damaged: {error}") from None
    if document.schema != SCHEMA:
        raise NoUsableInput(f"{path}: schema is {document.schema[:40]!r}, wanted {SCHEMA!r}")
    return document
