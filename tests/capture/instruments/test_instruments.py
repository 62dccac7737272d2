"""Notifications and patches of instrumentors, and those that watch schedules, gradients and workers."""

import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hubs import installed, make_hub

from ddprof.capture.bootstrap import instrumentors
from ddprof.capture.files.layout import host_label
from ddprof.capture.guard import Guard
from ddprof.capture.instruments import workers
from ddprof.capture.instruments.base import Instrumentor, Listeners, PatchSet
from ddprof.capture.instruments.gradients import GradientTimes
from ddprof.capture.instruments.pipelines import MegatronSchedules
from ddprof.capture.journal import Journal

# Is told of nothing; is told of the end of windows.
Silent: Any = type("Silent", (Instrumentor,), {"_install": lambda self, module: None})
Watching: Any = type("Watching", (Silent,), {"window_closed": lambda self: None})


def test_only_hooks_that_are_overridden_are_kept_and_few_stand_on_the_step_path() -> None:
    hub: Any = SimpleNamespace()
    watching = Watching(hub)
    listeners = Listeners([Silent(hub), watching, Silent(hub)])
    assert listeners.window_closed == [watching.window_closed]
    assert listeners.window_opened == listeners.step_ended == listeners.optimizer_stepped == []
    hub: Any = SimpleNamespace(guard=Guard())
    listeners = Listeners(instrumentors(hub))
    assert [type(hook.__self__).__name__ for hook in listeners.step_ended] == ["ForwardPasses", "GradientTimes"]
    assert [type(hook.__self__).__name__ for hook in listeners.optimizer_stepped] == ["DataLoading", "ForwardPasses"]


def test_patch_restores_inherited_and_own_attributes_and_leaves_a_later_patch_alone() -> None:
    class Base:
        def f(self) -> int:
            return 1

    class Child(Base):
        pass

    own = vars(Base)["f"]
    for owner in (Child, Base):
        patches = PatchSet()
        patches.add(owner, "f", lambda self: 2)
        assert Child().f() == 2 and patches
        patches.clear()
        patches.clear()
        assert Child().f() == 1
    assert "f" not in vars(Child) and vars(Base)["f"] is own
    owner = SimpleNamespace(f=1)
    patches.add(owner, "f", 2)
    owner.f = 3
    patches.clear()
    assert owner.f == 3


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
        given = {"model": model, "num_microbatches": microbatches, "forward_only": forward_only}
        assert getattr(module, name)(**given) == microbatches
    told = {"schedule": name, "stage_indices": stages, "stages": 4 * len(stages), "microbatches": 16}
    assert seen == [told] and len(began) == 3  # every call begins a step, before what it receives


@pytest.mark.torch
@pytest.mark.parametrize(("first_step", "last_step"), [(5, 7), (5, 5)])
def test_only_the_last_step_of_a_window_is_hooked(first_step: int, last_step: int) -> None:
    torch = pytest.importorskip("torch")
    model, journal = torch.nn.Linear(2, 2), Journal()
    observed = SimpleNamespace(ddp_model=lambda: SimpleNamespace(module=model), frameworks=["ddp"])
    hub: Any = SimpleNamespace(observed=observed, journal=journal)
    gradients = GradientTimes(hub)
    gradients.install(torch)
    gradients.window_opened(first_step, last_step)
    for step in range(first_step, last_step + 1):
        assert bool(gradients._handles) == (step == last_step)
        model(torch.ones(1, 2)).sum().backward()
        gradients.step_ended(step)
    gradients.window_closed()
    assert not gradients._handles and journal.gradient_ready is not None
    assert journal.gradient_ready["step"] == last_step
    assert sorted(entry["name"] for entry in journal.gradient_ready["parameters"]) == ["bias", "weight"]


@pytest.mark.torch
@pytest.mark.parametrize("asked", [None, 4711], ids=["forked by itself", "started by multiprocessing"])
def test_a_workers_file_has_the_name_of_its_rank(asked: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asked for it: the parent of a worker under forkserver is the server."""
    pytest.importorskip("torch.utils.data")
    monkeypatch.setattr(workers, "parent_process", lambda: asked and SimpleNamespace(pid=asked))
    stem = f"rank0.{host_label()}.{asked or os.getppid()}.0"
    (tmp_path / f"{stem}.sidecar.json").touch()
    hub = make_hub(folder=tmp_path, config=SimpleNamespace(stacks=False))
    with installed(workers.LoaderWorkers(hub), sys.modules["torch"]) as instrument:
        instrument._begins(SimpleNamespace(id=0))
    assert (tmp_path / f"{stem}.workers.jsonl").exists()
