"""Python communication hooks of DistributedDataParallel: each call gets a range named after its function.

DDP calls them from C++ inside the backward pass, where nothing else tells their Python from the backward pass itself.
Hooks of torch are left alone: what they run is operators, which the trace names.
"""

from __future__ import annotations

import functools
from types import CodeType, ModuleType
from typing import Any

from ddprof.capture.describe.stacks import is_library, shown_file
from ddprof.capture.instruments.base import Instrumentor

PREFIX = "ddprof::comm_hook "  # and the function as people write it: "train.py:88 compress()"


class CommHooks(Instrumentor):
    """Wraps the function that `register_comm_hook` passes to the reducer; DDP itself keeps the original."""

    module = "torch.distributed"

    def _install(self, module: ModuleType) -> None:
        original = getattr(module, "_register_comm_hook", None)
        if original is None:
            return  # a build without distributed
        timed = self.hub.guard.wrap(self._timed)

        @functools.wraps(original)
        def _register_comm_hook(reducer: Any, state: Any, hook: Any) -> Any:
            return original(reducer, state, timed(hook) or hook)

        self.patches.add(module, "_register_comm_hook", _register_comm_hook)

    def _timed(self, hook: Any) -> Any:
        """The hook inside a range, in windows; None for a library's hook."""
        code = _code_of(hook)
        if code is None or is_library(code.co_filename):
            return None
        label = f"{PREFIX}{shown_file(code.co_filename)}:{code.co_firstlineno} {code.co_name}()"
        annotator, begin = self.hub.annotator, self.hub.guard.wrap(self.hub.annotator.open)
        end = self.hub.guard.wrap(lambda opened: opened.close())

        @functools.wraps(hook)
        def timed(state: Any, bucket: Any) -> Any:
            if not annotator.listening:
                return hook(state, bucket)
            opened = begin(label)
            try:
                return hook(state, bucket)
            finally:
                if opened is not None:
                    end(opened)

        return timed


def _code_of(hook: Any) -> CodeType | None:
    """Code of a function, method, partial or callable object."""
    inner = getattr(hook, "func", hook)
    code = getattr(inner, "__code__", None) or getattr(vars(type(inner)).get("__call__"), "__code__", None)
    return code if isinstance(code, CodeType) else None
