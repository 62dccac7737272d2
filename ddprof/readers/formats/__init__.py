"""File formats: one file (or folder) each, ending in `FORMAT = Format(name, what, recognise, read, ...)`.

A format is added by adding its file; a slice has its own, and a third party registers one by an entry point in the
group `ddprof.formats`. The first one that recognises a file reads it: formats with marks of their own are asked
before those that take any events.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache

from ddprof.errors import NoUsableInput
from ddprof.model import RankTrace
from ddprof.readers.format import Format
from ddprof.readers.source import Source
from ddprof.slice import all_slices
from ddprof.untrusted.registered import registered

ENTRY_POINTS = "ddprof.formats"


@cache
def formats() -> Mapping[str, Format]:
    """Every format by name, in the order in which they are tried."""
    modules = [f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__)]
    modules += [module for part in all_slices() for module in part.formats]
    ours: list[Format] = [importlib.import_module(module).FORMAT for module in modules]
    ours += registered(ENTRY_POINTS)
    return {one.name: one for one in sorted(ours, key=lambda one: (one.generality, one.name))}


def read(source: Source) -> RankTrace:
    """Read one source. Raises NoUsableInput, in one line, where nothing in it can be used."""
    if source.format not in formats():
        raise NoUsableInput(f"{source.label}: format '{source.format}' has no reader")
    return formats()[source.format].read(source)
