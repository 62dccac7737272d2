"""The name of what is kept: changes with the source, with what lies beside it, and with the code that makes facts."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from ddprof._version import __version__

# The modules that make facts: a change of any of these files makes all kept facts stale.
_MAKERS = {
    **{"ddprof": "*.py", "ddprof.sidecar": "*.py"},
    **{"ddprof.readers": "**/*.py", "ddprof.slices": "**/*.py", "ddprof.analyzers.facts": "**/*.py"},
}
_DIGITS = 20


@lru_cache(maxsize=1)
def code_version() -> str:
    """Digest of the modules that make facts, so that no number has to be raised by hand when one of them changes."""
    digest = hashlib.sha256(__version__.encode())
    for package, pattern in _MAKERS.items():
        for file in sorted(Path(str(files(package))).glob(pattern)):
            digest.update(file.read_bytes())
    return digest.hexdigest()


def cache_key(version: str, parts: Mapping[str, Any]) -> str:
    """Twenty hexadecimal digits for a source, described by `parts`, whose facts this version of the code makes."""
    return hashlib.sha256(repr((version, sorted(parts.items()))).encode()).hexdigest()[:_DIGITS]
