"""Pipeline schedules of torch and Megatron-core: schedule, stages, number of microbatches."""

from __future__ import annotations

from functools import partial
from types import ModuleType
from typing import Any

from ddprof.capture.files.step import FORWARD
from ddprof.capture.hub import Hub
from ddprof.capture.instruments.base import Instrumentor


def begins(hub: Hub) -> None:
    """Handle the beginning of a schedule, where a step begins: every stage but the first receives before its first
    forward. Otherwise that receipt would be in the step before, and no two ranks' messages would match.
    """
    hub.end(FORWARD, hub.begin(FORWARD, "ddprof::pipeline"))


class PipelineSchedules(Instrumentor):
    """Reads a schedule when it steps; its forwards and backwards are timed like any other."""

    module = "torch.distributed.pipelining.schedules"

    def _install(self, module: ModuleType) -> None:
        self._described: set[int] = set()
        for name in ("PipelineScheduleSingle", "PipelineScheduleMulti"):
            cls = getattr(module, name, None)
            if cls is not None and "step" in vars(cls):
                self.patches.before(cls, "step", self.hub.guard.wrap(self._look))

    def _look(self, schedule: Any, *_: Any, **__: Any) -> None:
        begins(self.hub)
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


class MegatronSchedules(Instrumentor):
    """Reads the arguments of Megatron-core's schedules at their first training call."""

    module = "megatron.core.pipeline_parallel.schedules"
    _NAMES = ("forward_backward_pipelining_with_interleaving", "forward_backward_pipelining_without_interleaving")

    def _install(self, module: ModuleType) -> None:
        self._is_described = False
        for name in self._NAMES:
            if name in vars(module):
                look = partial(self._look, module, name)
                self.patches.before(module, name, self.hub.guard.wrap(lambda *_, look=look, **kwargs: look(kwargs)))

    def _look(self, module: Any, name: str, kwargs: dict[str, Any]) -> None:
        begins(self.hub)
        if self._is_described or kwargs.get("forward_only"):
            return
        self._is_described = True
        state, model = module.parallel_state, kwargs["model"]
        chunks = len(model) if isinstance(model, list) else 1
        rank, ranks = state.get_pipeline_model_parallel_rank(), state.get_pipeline_model_parallel_world_size()
        self.hub.observed.saw_pipeline(
            {
                "schedule": name,
                "stage_indices": [rank + chunk * ranks for chunk in range(chunks)],
                "stages": chunks * ranks,
                "microbatches": kwargs["num_microbatches"],
            }
        )
