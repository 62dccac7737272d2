"""An optimizer: which one, how it runs its kernels, how it groups parameters."""

from __future__ import annotations

from typing import Any


def describe(optimizer: Any) -> dict[str, Any]:
    """Class, fused / foreach as set by the user (null: torch's default), numbers of parameter groups and parameters."""
    groups = getattr(optimizer, "param_groups", [])
    first = groups[0] if groups else {}
    return {
        "class": type(optimizer).__name__,
        "fused": first.get("fused"),
        "foreach": first.get("foreach"),
        "capturable": first.get("capturable"),
        "parameter_groups": len(groups),
        "parameter_tensors": sum(len(group.get("params", ())) for group in groups),
    }
