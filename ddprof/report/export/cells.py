"""Text in a cell of a CSV file: clean, and never a formula."""

from __future__ import annotations

from ddprof.outside.plain_text import clean

# A spreadsheet runs a cell that begins with one of these, also in the full width of East Asian scripts.
_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def text_cell(text: str) -> str:
    """Text from a trace as text for a spreadsheet: behind a quote where it could be run."""
    shown = clean(text)
    return "'" + shown if shown.lstrip(" ?'\"").startswith(_FORMULA) else shown
