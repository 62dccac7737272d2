"""Batch normalisation: how many layers take their statistics from this rank's batch alone."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any


def batch_norms(models: Sequence[tuple[str, Any]]) -> list[dict[str, Any]]:
    """One entry per model, (kind, model) as met, that has such layers; layers in evaluation mode (frozen) are none."""
    base = sys.modules["torch"].nn.modules.batchnorm._BatchNorm
    seen: set[int] = set()
    found = []
    for kind, model in models:
        inner = getattr(model, "module", model)
        layers = [(name, layer) for name, layer in inner.named_modules() if isinstance(layer, base) and layer.training]
        own = [name for name, layer in layers if id(layer) not in seen and not _is_synchronised(layer)]
        seen.update(id(layer) for _, layer in layers)
        if own:
            found.append({"class": type(inner).__name__, "kind": kind, "layers": len(own), "first": own[0]})
    return found


def _is_synchronised(layer: Any) -> bool:
    """SyncBatchNorm, torch's own or another library's (apex, inplace_abn)."""
    return any("sync" in cls.__name__.lower() for cls in type(layer).__mro__)
