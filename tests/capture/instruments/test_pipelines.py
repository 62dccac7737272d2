"""Megatron-core's schedules, played: what they are called with is kept, of training and once."""

from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from ddprof.capture.guard import Guard
from ddprof.capture.instruments.pipelines import MegatronSchedules


@pytest.mark.parametrize(("model", "stages"), [(["a", "b"], [1, 5]), ("whole", [1])])
def test_a_schedule_of_megatron_is_described_by_its_first_training_call(model: Any, stages: list[int]) -> None:
    seen: list[dict[str, Any]] = []
    name = f"forward_backward_pipelining_with{'' if len(stages) > 1 else 'out'}_interleaving"
    module: Any = ModuleType("megatron.core.pipeline_parallel.schedules")
    setattr(module, name, lambda **given: given["num_microbatches"])
    one_of_four = {"get_pipeline_model_parallel_rank": lambda: 1, "get_pipeline_model_parallel_world_size": lambda: 4}
    module.parallel_state = SimpleNamespace(**one_of_four)
    began: list[int] = []
    timers = {"begin": lambda phase, name: began.append(phase), "end": lambda phase, token: None}
    hub: Any = SimpleNamespace(guard=Guard(), observed=SimpleNamespace(saw_pipeline=seen.append), **timers)
    MegatronSchedules(hub).install(module)
    for microbatches, forward_only in ((2, True), (16, False), (8, False)):
        call = getattr(module, name)
        assert call(model=model, num_microbatches=microbatches, forward_only=forward_only) == microbatches
    told = {"schedule": name, "stage_indices": stages, "stages": 4 * len(stages), "microbatches": 16}
    assert seen == [told] and len(began) == 3  # every call begins a step, before what it receives
