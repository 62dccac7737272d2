"""An optimizer: which one, how it runs its kernels, how it groups parameters."""

from __future__ import annotations

from typing import Any

_MAX_RATES = 16  # parameter groups


def describe(optimizer: Any) -> dict[str, Any]:
    """Class, fused / foreach as set by the user (null: torch's default), numbers of parameter groups and parameters,
    and each group's learning rate as the script gave it, before any schedule."""
    groups = getattr(optimizer, "param_groups", [])
    first = groups[0] if groups else {}
    return {
        "class": type(optimizer).__name__,
        "fused": first.get("fused"),
        "foreach": first.get("foreach"),
        "capturable": first.get("capturable"),
        "parameter_groups": len(groups),
        "learning_rates": [_rate(group) for group in groups[:_MAX_RATES]],
        "parameter_tensors": sum(len(group.get("params", ())) for group in groups),
    }


def _rate(group: Any) -> float | None:
    """None for a rate that is a tensor: reading it could wait for the device."""
    rate = group.get("initial_lr", group.get("lr"))
    return float(rate) if isinstance(rate, (int, float)) else None
