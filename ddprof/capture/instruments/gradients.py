"""When each gradient is ready in backward: what a bucket planner needs and no trace tells by parameter.

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
    """Armed by the session for one step, whose times are kept."""

    def _install(self, module: ModuleType) -> None:
        self._handles: list[Any] = []
        self._times: list[tuple[int, int]] = []
        self._parameters: list[tuple[str, int]] = []

    def _uninstall(self) -> None:
        self.disarm()

    def arm(self) -> None:
        """Hook the parameters of the DDP model, if there is one."""
        model = self.session.observed.ddp_model()
        if self._handles or model is None or "compiled" in self.session.observed.frameworks:
            return
        named = [(name, p) for name, p in model.module.named_parameters() if p.requires_grad][:_MAX_PARAMETERS]
        self._parameters = [(name, p.numel() * p.element_size()) for name, p in named]
        self._times = []
        self._handles = [
            parameter.register_post_accumulate_grad_hook(self._hook(index))
            for index, (_, parameter) in enumerate(named)
        ]

    def _hook(self, index: int) -> Any:
        def ready(parameter: Any) -> None:
            self._times.append((index, time.time_ns()))

        return ready

    def step_ended(self, number: int) -> None:
        """Between two steps: keep what was seen, begin anew."""
        times, self._times = self._times, []
        if not self._handles or not times:
            return
        last = dict(times)  # with gradient accumulation a parameter is ready several times: the last one counts
        self.session.journal.gradient_ready = {
            "step": number,
            "parameters": [
                {"name": self._parameters[index][0], "size_bytes": self._parameters[index][1], "ready_ns": at_ns}
                for index, at_ns in sorted(last.items(), key=lambda item: item[1])
            ],
        }

    def disarm(self) -> None:
        """Remove every hook. Idempotent."""
        while self._handles:
            self._handles.pop().remove()
