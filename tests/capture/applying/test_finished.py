"""Gradients in another precision, by DDP's hook, and units of fully_shard that prefetch the next ones."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")
from hubs import applying, told  # noqa: E402
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks  # noqa: E402

from ddprof.capture.applying import finished  # noqa: E402

pytestmark = pytest.mark.torch
STATED = "gradient_compression=bf16"
source: Any = pytest.importorskip("torch.distributed.fsdp._fully_shard._fully_shard")
BOTH = ("forward_prefetch_units=2", "backward_prefetch_units=1")
KEPT = ("_states_to_forward_prefetch", "_states_to_backward_prefetch")


def _trained(model: Any) -> None:
    model(torch.ones(1, 3)).sum().backward()


def test_the_hook_is_registered_as_the_first_backward_pass_begins(alone: None, monkeypatch: pytest.MonkeyPatch) -> None:
    registered: list[Any] = []
    wrap = torch.nn.parallel.DistributedDataParallel
    monkeypatch.setattr(wrap, "register_comm_hook", lambda model, state, hook: registered.append((model, hook)))
    monkeypatch.setattr(finished, "exchanged_on_cpu", lambda model: False)
    with applying(finished.GradientCompressionApplier, STATED) as outcomes:
        model = wrap(torch.nn.Linear(3, 2))
        assert told(outcomes) == [("gradient_compression", False, None, "no backward pass has begun")]
        for _ in range(2):
            _trained(model)
    assert registered == [(model, default_hooks.bf16_compress_hook)]
    assert told(outcomes) == [("gradient_compression", True, None, "")]


def test_the_scripts_hook_stays_and_what_ddp_refuses_is_told(alone: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with applying(finished.GradientCompressionApplier, STATED) as outcomes:
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 2))
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
        _trained(model)
    assert told(outcomes)[0][3] == "the script registers a communication hook of its own"
    with applying(finished.GradientCompressionApplier, STATED) as outcomes:
        _trained(torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 2)))
    assert "exchanged by gloo" in told(outcomes)[0][3]
    monkeypatch.setattr(finished, "exchanged_on_cpu", lambda model: False)
    with applying(finished.GradientCompressionApplier, STATED) as outcomes:
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 2))
        model._register_builtin_comm_hook(torch.distributed.BuiltinCommHookType.ALLREDUCE)
        _trained(model)
    assert not told(outcomes)[0][1] and told(outcomes)[0][3]


def _model(layers: int) -> Any:
    model = torch.nn.Sequential(*[torch.nn.Linear(3, 3) for _ in range(layers)])
    for layer in model:
        source.fully_shard(layer)
    return source.fully_shard(model)


def _lists(model: Any, kept: str) -> list[list[int]]:
    layers = [layer._get_fsdp_state() for layer in model]
    return [[layers.index(state) for state in getattr(unit, kept)] for unit in layers]


def test_units_prefetch_those_that_come_next_and_lists_of_the_scripts_stay(alone: None) -> None:
    with applying(finished.PrefetchApplier, *BOTH, of=(source.__name__,), module=source) as outcomes:
        model = _model(4)
        for _ in range(2):
            _trained(model)
    assert _lists(model, KEPT[0]) == [[1, 2], [2, 3], [3], []] and _lists(model, KEPT[1]) == [[], [0], [1], [2]]
    assert [(name, done) for name, done, _, _ in told(outcomes)] == [(text.partition("=")[0], True) for text in BOTH]
    with applying(finished.PrefetchApplier, *BOTH, of=(source.__name__,), module=source) as outcomes:
        model = _model(3)
        model[0].set_modules_to_forward_prefetch([model[2]])
        model(torch.ones(1, 3)).sum().backward()
    assert _lists(model, KEPT[0]) == [[2], [], []] and _lists(model, KEPT[1]) == [[], [0], [1]]
    assert [row[:2] for row in told(outcomes)] == [("forward_prefetch_units", False), ("backward_prefetch_units", True)]


@pytest.mark.parametrize("layers", [0, 1])
def test_a_model_without_a_next_unit(alone: None, layers: int) -> None:
    with applying(finished.PrefetchApplier, BOTH[0], of=(source.__name__,), module=source) as outcomes:
        model = _model(1) if layers else source.fully_shard(torch.nn.Linear(3, 3))
        model(torch.ones(1, 3)).sum().backward()
    why = "it is the only unit: none comes before or after it"
    assert told(outcomes) == [("forward_prefetch_units", False, None, why)]
