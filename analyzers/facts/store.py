"""RankFacts on disk: parquet tables and one JSON file, so that unchanged inputs are read once.

The folder lies beside the trace (`.ddprof/`), or in the user's cache where that is read-only. A key over path, size,
modification time and the version of ddprof names it; anything that does not fit is recomputed, never trusted.
"""

from __future__ import annotations

import hashlib
import os
import shutil
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
from ddprof.sidecar import Sidecar
from ddprof.tables import read_parquet, write_parquet

# The modules that make facts: a change of any of these files makes all cached facts stale.
_MAKERS = {"ddprof": "*.py", "ddprof.readers": "**/*.py", "ddprof.analyzers.facts": "**/*.py"}


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
    """Where to keep the facts of a trace; None where neither its folder nor the user's cache can be written."""
    beside = Path(trace_path).parent
    if os.access(beside, os.W_OK) and "://" not in trace_path:
        return beside / ".ddprof" / key
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ddprof"
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return root / key if os.access(root, os.W_OK) else None


def save(facts: RankFacts, folder: Path) -> None:
    """Write all tables and the rest as JSON; complete or not at all (written aside, then renamed). Raises OSError."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=".part-", dir=folder.parent))
    try:
        for name in TABLES:
            write_parquet(getattr(facts, name), aside / f"{name}.parquet")
        meta = _Meta(**{field: _plain(getattr(facts, field)) for field in _Meta.__struct_fields__})
        (aside / "facts.json").write_bytes(msgspec.json.encode(meta, enc_hook=str))
        if not folder.exists():
            aside.rename(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value


def load(folder: Path) -> RankFacts | None:
    """Facts that were saved; None where there are none or they cannot be read."""
    if not (folder / "facts.json").is_file():
        return None
    try:
        meta = msgspec.json.decode((folder / "facts.json").read_bytes(), type=_Meta)
        tables = {name: read_parquet(schema, folder / f"{name}.parquet") for name, schema in TABLES.items()}
    except (OSError, ValueError, KeyError, msgspec.MsgspecError):
        return None
    kept: dict[str, Any] = {field: getattr(meta, field) for field in _Meta.__struct_fields__}
    return RankFacts(**kept | tables)
