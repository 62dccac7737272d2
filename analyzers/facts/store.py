"""RankFacts on disk: parquet tables and one JSON file, so that unchanged inputs are read once.

The folder lies beside the trace (`.ddprof/`), or in the user's cache where that is read-only. A key over path, size,
modification time and the version of ddprof names it; anything that does not fit, by a checksum over all files and by
their owner, is recomputed, never trusted.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from ddprof._version import __version__
from ddprof.analyzers.facts.model import TABLES, RankFacts
from ddprof.model import Device, HealthNote, Identity, ProcessGroup
from ddprof.outside.regular_files import open_regular
from ddprof.sidecar import Sidecar
from ddprof.tables import from_parquet, to_parquet

_META, _CHECKSUM = "facts.json", "checksum"
_FILES = (_META, *(f"{name}.parquet" for name in TABLES))
MAX_FILE_BYTES = 1 << 30  # the facts of a rank are some MB
# The modules that make facts: a change of any of these files makes all cached facts stale.
_MAKERS = {"ddprof": "*.py", "ddprof.sidecar": "*.py", "ddprof.readers": "**/*.py", "ddprof.analyzers.facts": "**/*.py"}


class _Meta(msgspec.Struct):
    identity: Identity
    device: Device
    path: str
    format: str
    has_base_time: bool
    strings: tuple[str, ...]
    step_source: str
    is_device_rank: bool
    main_thread: int | None
    process_groups: tuple[ProcessGroup, ...]
    memory: dict[str, Any]
    counts: dict[str, int]
    torn_steps: tuple[int, ...]
    sidecar: Sidecar
    top: dict[str, Any]
    health: tuple[HealthNote, ...]


@lru_cache(maxsize=1)
def _code_version() -> str:
    """Digest of the modules that make facts, so that no number has to be raised by hand when one of them changes."""
    digest = hashlib.sha256(__version__.encode())
    for package, pattern in _MAKERS.items():
        for file in sorted(Path(str(files(package))).glob(pattern)):
            digest.update(file.read_bytes())
    return digest.hexdigest()


def cache_key(parts: Mapping[str, Any]) -> str:
    """Name of the cache folder for a source: changes whenever the source, its companions or ddprof change."""
    text = repr((_code_version(), sorted(parts.items())))
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def cache_folder(trace_path: str, key: str) -> Path | None:
    """Where to keep the facts of a trace; None where neither its folder nor the user's cache can be written.

    A folder that is a link, or that another user than the trace's owner made, could lead anywhere: it is not used.
    """
    beside = Path(trace_path).parent
    if os.access(beside, os.W_OK) and "://" not in trace_path and _is_ours(beside / ".ddprof", trace_path):
        return beside / ".ddprof" / key
    try:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ddprof"
        root.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # RuntimeError: the user has no home
        return None
    return root / key if os.access(root, os.W_OK) else None


def _is_ours(folder: Path, trace_path: str) -> bool:
    """Whether a folder may hold what we believe: not there yet, or made by one of `_believed`."""
    try:
        status = os.lstat(folder)
    except OSError:
        return True
    return stat.S_ISDIR(status.st_mode) and status.st_uid in _believed(trace_path)


def _believed(trace_path: str) -> set[int]:
    """Users who can change a report anyhow: whoever reads the trace, whoever wrote it, and root."""
    try:
        return {0, os.getuid(), os.stat(trace_path).st_uid}
    except OSError:
        return {0, os.getuid()}


def save(facts: RankFacts, folder: Path, trace_path: str) -> None:
    """Write all tables and the rest as JSON; complete or not at all (written aside, then renamed).

    Raises OSError where it cannot be written, ValueError where a text of the facts cannot.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=".part-", dir=folder.parent))
    try:
        meta = _Meta(**{field: _plain(getattr(facts, field)) for field in _Meta.__struct_fields__})
        contents = {f"{name}.parquet": to_parquet(getattr(facts, name)) for name in TABLES}
        contents[_META] = msgspec.json.encode(meta, enc_hook=str)
        contents[_CHECKSUM] = _checksum(contents, folder).encode()
        for name, content in contents.items():
            (aside / name).write_bytes(content)
        _put(aside, folder, trace_path)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _put(aside: Path, folder: Path, trace_path: str) -> None:
    """In the place of what cannot be read; another process may have kept the same facts meanwhile."""
    if folder.exists() and load(folder, trace_path) is None:
        shutil.rmtree(folder)
    try:
        aside.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value


def load(folder: Path, trace_path: str) -> RankFacts | None:
    """Facts that were saved of a trace.

    None where there are none, they are not what was written there, or another user wrote them.
    """
    try:
        believed = _believed(trace_path)
        contents = {name: _content(folder / name, believed) for name in (*_FILES, _CHECKSUM)}
        if contents.pop(_CHECKSUM) != _checksum(contents, folder).encode():
            return None
        meta = msgspec.json.decode(contents[_META], type=_Meta)
        tables = {name: from_parquet(schema, contents[f"{name}.parquet"]) for name, schema in TABLES.items()}
    except (OSError, ValueError, KeyError, msgspec.MsgspecError):
        return None
    kept: dict[str, Any] = {field: getattr(meta, field) for field in _Meta.__struct_fields__}
    return RankFacts(**kept | tables)


def _content(file: Path, believed: set[int]) -> bytes:
    with open_regular(file) as stream:
        if os.fstat(stream.fileno()).st_uid not in believed:
            raise PermissionError("another user's file")
        return stream.read(MAX_FILE_BYTES)


def _checksum(contents: Mapping[str, bytes], folder: Path) -> str:
    """Of all files under the name of their folder: a disk that errs must not change a report. A gigabyte a second."""
    digest = hashlib.blake2b(folder.name.encode(), digest_size=16)
    for name in _FILES:
        digest.update(len(contents[name]).to_bytes(8, "little"))
        digest.update(contents[name])
    return digest.hexdigest()
