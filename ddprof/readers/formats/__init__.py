"""Formats: one file (or room) per file format, each ending in `FORMAT = Format(name, what, recognise, read, ...)`.

A format is added by adding its file. The first one that recognises a file reads it: `FORMATS` is in the order in which
they are asked, formats with marks of their own before those that take any events.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping

from ddprof.readers.format import Format

_MODULES = [importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
FORMATS: Mapping[str, Format] = {
    found.name: found for found in sorted((m.FORMAT for m in _MODULES), key=lambda f: (f.generality, f.name))
}
