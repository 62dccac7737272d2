"""Backward: `torch.autograd.backward`, which Tensor.backward, GradScaler, Lightning, DeepSpeed and the Trainer all
call.

`torch.autograd.grad` is left out on purpose: it computes penalties and Jacobians, not the step's gradients.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from ddprof.capture.files.step import BACKWARD
from ddprof.capture.instruments.base import Instrumentor


class Backward(Instrumentor):
    """Times the outermost call; re-entrant checkpointing nests inside it."""

    def _install(self, module: ModuleType) -> None:
        torch: Any = module
        begin, end, original = self.hub.begin, self.hub.end, torch.autograd.backward
        is_compiling, unmarked = torch.compiler.is_compiling, self.hub.unmarked

        def backward(*args: Any, **kwargs: Any) -> None:
            """torch.autograd.backward, timed."""
            if is_compiling():
                original(*args, **kwargs)
                return
            token = begin(BACKWARD)
            try:
                original(*args, **kwargs)
            finally:
                end(BACKWARD, token)
                if unmarked and token:
                    unmarked[0].backward_ended()

        backward.__doc__ = original.__doc__
        backward.__wrapped__ = original  # type: ignore[attr-defined]
        self.patches.add(torch.autograd, "backward", backward)
