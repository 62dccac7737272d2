"""Times at which each gradient is ready in backward, for the bucket planner; traces lack them by parameter.

Only for DistributedDataParallel, only in the last step of a window, by post-accumulate hooks that are removed after it.
Not under torch.compile, which would guard on the hooks and compile again.
"""

from __future__ import annotations

import time
from types import ModuleType
from typing import Any

from ddprof.capture.instruments.base import Instrumentor

_MAX_PARAMETERS = 4096


class GradientTimes(Instrumentor):
    """Hooks the parameters in the last step of a window, and keeps the times of their gradients."""

    def _install(self, module: ModuleType) -> None:
        self._last_step: int | None = None  # of the open window
        self._handles: list[Any] = []
        self._times: list[tuple[int, int]] = []
        self._parameters: list[tuple[str, int]] = []

    def _uninstall(self) -> None:
        self.window_closed()

    def window_opened(self, first_step: int, last_step: int) -> None:
        """Wait for the last step, or hook at once in a window of one step."""
        self._last_step = last_step
        if first_step == last_step:
            self._arm()

    def _arm(self) -> None:
        """Hook the parameters of the DDP model, if there is one."""
        model = self.hub.observed.ddp_model()
        if self._handles or model is None or "compiled" in self.hub.observed.frameworks:
            return
        named = [(name, p) for name, p in model.module.named_parameters() if p.requires_grad][:_MAX_PARAMETERS]
        self._parameters = [(name, p.numel() * p.element_size()) for name, p in named]
        self._times = []
        self._handles = [
            parameter.register_post_accumulate_grad_hook(lambda _, at=index: self._times.append((at, time.time_ns())))
            for index, (_, parameter) in enumerate(named)
        ]

    def step_ended(self, number: int) -> None:
        """Keep the times of the window's last step; hook the parameters where that step begins now."""
        if self._handles and self._times:
            self._keep(number)
        if self._last_step is not None and number + 1 == self._last_step:
            self._arm()

    def _keep(self, number: int) -> None:
        last = dict(self._times)  # with gradient accumulation a parameter is ready several times: the last one counts
        self.hub.journal.gradient_ready = {
            "step": number,
            "parameters": [
                {"name": self._parameters[index][0], "size_bytes": self._parameters[index][1], "ready_ns": at_ns}
                for index, at_ns in sorted(last.items(), key=lambda item: item[1])
            ],
        }

    def window_closed(self) -> None:
        """Remove every hook. Idempotent."""
        self._last_step = None
        while self._handles:
            self._handles.pop().remove()
