"""The job's settings as a fix shows them."""

from __future__ import annotations


def text(setting: object) -> str | None:
    """A captured setting for a fix, numbers to four digits (bytes given in MiB come back rounded); None if not
    captured.
    """
    if isinstance(setting, float):
        return f"{setting:.4g}"
    return None if setting is None else str(setting)
