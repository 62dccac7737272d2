"""What the capture knows of the job's settings, for fixes that name the present value."""

from __future__ import annotations

from typing import Any

from ddprof.analyzers.job.measures import Measures


def setting(measures: Measures, section: str, key: str) -> Any:
    """A sidecar value such as ("dataloader", "num_workers"); None where it was not captured."""
    found = measures.settings.get(section)
    if isinstance(found, list):
        found = found[0] if found else None
    return found.get(key) if isinstance(found, dict) else None


def text(value: Any) -> str | None:
    """A value as shown in a fix; None stays None."""
    return None if value is None else str(value)
