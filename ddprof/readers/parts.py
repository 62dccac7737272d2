"""Rank of one of the devices or processes that a file holds together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ddprof.model import Identity
from ddprof.readers.files.names import rank_in_name
from ddprof.readers.source import Source


def part_identity(source: Source, parts: Sequence[str], **about: Any) -> Identity:
    """Identity of the part that `source` names, the first one where it names none: its place among the `parts`, and of
    an only one the rank in the file's name. `about`: further fields of Identity.
    """
    if len(parts) > 1:
        at = parts.index(source.part) if source.part in parts else 0
        return Identity(at, "content", len(parts), **about)
    named = rank_in_name(source.member or source.path)
    return Identity(named or 0, "order" if named is None else "file name", None, **about)
