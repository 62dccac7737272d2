"""Gradients in another precision, by DDP's hook."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from appliers import applying, told  # noqa: E402
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks  # noqa: E402

from ddprof.capture.applying.wrapped import compression  # noqa: E402

pytestmark = pytest.mark.torch
STATED = "gradient_compression=bf16"


def _trained(model: Any) -> None:
    model(torch.ones(1, 3)).sum().backward()


def test_the_hook_is_registered_as_the_first_backward_pass_begins(alone: None, monkeypatch: pytest.MonkeyPatch) -> None:
    registered: list[Any] = []
    wrap = torch.nn.parallel.DistributedDataParallel
    monkeypatch.setattr(wrap, "register_comm_hook", lambda model, state, hook: registered.append((model, hook)))
    monkeypatch.setattr(compression, "exchanged_on_cpu", lambda model: False)
    with applying(compression.GradientCompressionApplier, STATED) as outcomes:
        model = wrap(torch.nn.Linear(3, 2))
        assert told(outcomes) == [("gradient_compression", False, None, "no backward pass has begun")]
        for _ in range(2):
            _trained(model)
    assert registered == [(model, default_hooks.bf16_compress_hook)]
    assert told(outcomes) == [("gradient_compression", True, None, "")]


def test_a_hook_of_the_scripts_stays_and_cpu_ranks_have_none(alone: None) -> None:
    with applying(compression.GradientCompressionApplier, STATED) as outcomes:
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 2))
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
        _trained(model)
    assert told(outcomes)[0][3] == "the script registers a communication hook of its own"
    with applying(compression.GradientCompressionApplier, STATED) as outcomes:
        _trained(torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 2)))
    assert "exchanged by gloo" in told(outcomes)[0][3]


def test_what_ddp_refuses_is_told(alone: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "exchanged_on_cpu", lambda model: False)
    with applying(compression.GradientCompressionApplier, STATED) as outcomes:
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 2))
        model._register_builtin_comm_hook(torch.distributed.BuiltinCommHookType.ALLREDUCE)
        _trained(model)
    assert not told(outcomes)[0][1] and told(outcomes)[0][3]
