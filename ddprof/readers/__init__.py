"""Readers: files of any supported format to `model.RankTrace`, chosen by content.

`discover` finds sources and groups them by run, `read` turns one source into columns, `resolve_identities` decides
the ranks over all files of a run.
"""

from __future__ import annotations

from ddprof.readers.admission.discover import discover
from ddprof.readers.admission.identity import resolve_identities
from ddprof.readers.formats import read
from ddprof.readers.source import Inventory, Source, notes_by_run

__all__ = ["Inventory", "Source", "discover", "notes_by_run", "read", "resolve_identities"]
