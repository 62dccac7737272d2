"""The job's settings, as a fix shows them."""

from __future__ import annotations


def text(setting: object) -> str | None:
    """A captured setting as a fix shows it; None where it was not captured."""
    return None if setting is None else str(setting)
