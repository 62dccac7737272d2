"""A profiler that the script starts always wins: our window ends before it begins."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from ddprof.capture.instruments.base import Instrumentor


class UserProfilers(Instrumentor):
    """Watches the start of torch's autograd profiler, the base of torch.profiler, Lightning's and Hugging Face's."""

    def _install(self, module: ModuleType) -> None:
        cls: Any = sys.modules["torch.autograd.profiler"].profile
        for name in ("_prepare_trace", "_start_trace"):
            if hasattr(cls, name):  # our own profiler starts while no window is open, and changes nothing
                self.patches.before(cls, name, lambda *_, **__: self.hub.user_profiler_starts())
