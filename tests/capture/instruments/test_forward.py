"""Wrappers of frameworks: where their classes are, and that they are timed."""

import importlib
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hubs import installed, make_hub

from ddprof.capture.instruments.forward import ForwardPasses, wrapper_forwards

pytestmark = pytest.mark.torch


def test_every_wrapper_is_where_the_table_says_and_timed_once_its_package_is_imported() -> None:
    torch = pytest.importorskip("torch")
    with installed(ForwardPasses(make_hub()), torch) as passes:
        wrappers = [wrapper for wrapper in wrapper_forwards(passes) if wrapper.module.startswith("torch.")]
        for wrapper in wrappers:
            wrapper.install(importlib.import_module(wrapper.module))
        assert sorted(passes._watched.values()) == ["compiled", "ddp", "dp", "fsdp1", "fsdp2"]
    watched: list[tuple[Any, str]] = []
    forward: Any = SimpleNamespace(hub=None, watch_class=lambda cls, kind: watched.append((cls, kind)))
    engine: Any = ModuleType("deepspeed.runtime.engine")
    engine.DeepSpeedEngine = type("DeepSpeedEngine", (), {})
    wrapper = next(one for one in wrapper_forwards(forward) if one.module == engine.__name__)
    wrapper.install(engine)
    wrapper.install(engine)
    assert watched == [(engine.DeepSpeedEngine, "deepspeed")]


def test_a_call_without_gradients_is_no_forward_pass_once_an_optimizer_has_stepped() -> None:
    torch, phases = pytest.importorskip("torch"), list[str]()
    begin: Any = lambda *_: phases.append("forward") or True  # noqa: E731
    hub = make_hub(observed=SimpleNamespace(saw_root=lambda *_: None), begin=begin)
    with installed(ForwardPasses(hub), torch) as forward:
        forward.step_ended(0)  # no more roots are learnt
        model = type("Model", (torch.nn.Linear,), {})(2, 2)
        forward.watch_class(type(model), "module")
        called = {}
        for name, stepped in (("before", False), ("after", True)):
            if stepped:
                assert not forward.optimizer_stepped()
            for mode in (torch.no_grad, torch.inference_mode, torch.enable_grad):
                phases.clear()
                with mode():
                    model(torch.zeros(1, 2))
                called[name, mode] = len(phases)
        assert [*called.values()] == [1, 1, 1, 0, 0, 1]
