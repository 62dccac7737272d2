"""The job's settings, as a fix shows them."""

from __future__ import annotations


def text(setting: object) -> str | None:
    """A captured setting as a fix shows it, a number to four digits (bytes that were given in MiB come back with their
    rounding); None where it was not captured.
    """
    if isinstance(setting, float):
        return f"{setting:.4g}"
    return None if setting is None else str(setting)
