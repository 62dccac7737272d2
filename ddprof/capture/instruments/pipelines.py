"""Pipeline schedules of torch.distributed.pipelining: which one, which stages, how many microbatches."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from ddprof.capture.instruments.base import Instrumentor


class PipelineSchedules(Instrumentor):
    """Looks at a schedule when it steps; its forwards and backwards are timed like any other."""

    module = "torch.distributed.pipelining.schedules"

    def _install(self, module: ModuleType) -> None:
        self._described: set[int] = set()
        for name in ("PipelineScheduleSingle", "PipelineScheduleMulti"):
            cls = getattr(module, name, None)
            if cls is not None and "step" in vars(cls):
                self.patches.add(cls, "step", self._looked_at(cls.step))

    def _looked_at(self, original: Any) -> Any:
        look = self.hub.guard.wrap(self._look)

        def step(schedule: Any, *args: Any, **kwargs: Any) -> Any:
            look(schedule)
            return original(schedule, *args, **kwargs)

        return step

    def _look(self, schedule: Any) -> None:
        if id(schedule) in self._described:
            return
        self._described.add(id(schedule))
        stages = getattr(schedule, "_stages", None) or [schedule._stage]
        self.hub.observed.saw_pipeline(
            {
                "schedule": type(schedule).__name__,
                "stage_indices": [stage.stage_index for stage in stages],
                "stages": stages[0].num_stages,
                "microbatches": getattr(schedule, "_n_microbatches", None),
            }
        )
