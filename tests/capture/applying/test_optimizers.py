"""Optimizers made with other kernels, their parameters read once, and calls with other arguments."""

import inspect
from typing import Any
from unittest.mock import Mock

import pytest
from hubs import applying, told

from ddprof.capture.applying.applier import ConstructorCall, first_that_works
from ddprof.capture.applying.optimizers import OptimizerSettingsApplier, ZeroGradApplier

torch = pytest.importorskip("torch")


def _model(dtype: Any = None) -> Any:
    return torch.nn.Linear(3, 2, dtype=dtype)


@pytest.mark.torch
def test_parameters_that_can_be_read_once_reach_the_optimizer() -> None:
    model = _model()
    with applying(OptimizerSettingsApplier, "fused=true") as outcomes:
        optimizer = torch.optim.AdamW(model.parameters(), 0.1)
    assert optimizer.defaults["fused"] is True and len(optimizer.param_groups[0]["params"]) == 2
    assert told(outcomes) == [("fused", True, None, "")]
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()


@pytest.mark.torch
@pytest.mark.parametrize("cls", ["AdamW", "SGD"])
def test_what_the_first_step_would_refuse_is_not_applied(cls: str) -> None:
    with applying(OptimizerSettingsApplier, "fused=true") as outcomes:
        optimizer = getattr(torch.optim, cls)(_model(torch.complex64).parameters(), lr=0.1)
    assert not optimizer.defaults["fused"] and len(optimizer.param_groups[0]["params"]) == 2
    assert "fused" in told(outcomes)[0][3] and not told(outcomes)[0][1]


@pytest.mark.torch
@pytest.mark.parametrize("pair", ["fused foreach", "foreach fused", "foreach differentiable"])
def test_kernels_that_exclude_each_other(pair: str) -> None:
    asked, given = pair.split()
    with applying(OptimizerSettingsApplier, f"{asked}=true") as outcomes:
        optimizer = torch.optim.AdamW(_model().parameters(), **{given: True})
    assert optimizer.defaults[given] is True and f"the script sets {given}=True" in told(outcomes)[0][3]


@pytest.mark.torch
def test_an_iterator_may_raise_and_a_failed_call_leaves_groups_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def parameters() -> Any:
        yield _model().weight
        raise OSError("the script's own")

    with applying(OptimizerSettingsApplier, "foreach=true"), pytest.raises(OSError, match="the script's own"):
        torch.optim.SGD(parameters(), lr=0.1)
    original = torch.optim.Optimizer.__init__

    def refuses(optimizer: Any, params: Any, defaults: dict[str, Any]) -> None:
        original(optimizer, params, defaults)
        if defaults["foreach"]:
            raise RuntimeError("no")

    monkeypatch.setattr(torch.optim.Optimizer, "__init__", refuses)
    model = _model()
    group = {"params": iter([model.weight]), "lr": 0.5}
    with applying(OptimizerSettingsApplier, "foreach=true") as outcomes:
        optimizer = torch.optim.SGD([group, {"params": model.bias}], lr=0.1)
    assert "RuntimeError: no" in told(outcomes)[0][3]
    assert optimizer.param_groups[0] is group and group["foreach"] is None and group["params"] == [model.weight]


@pytest.mark.torch
def test_gradients_become_none_and_a_class_without_the_choice_stays() -> None:
    model = _model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(1, 3)).sum().backward()
    with applying(ZeroGradApplier, "set_to_none=true") as outcomes:
        optimizer.zero_grad(set_to_none=False)
    assert model.weight.grad is None and told(outcomes) == [("set_to_none", True, False, "")]
    with applying(OptimizerSettingsApplier, "fused=true") as outcomes:
        torch.optim.RMSprop(_model().parameters())
    assert told(outcomes) == [("fused", False, None, "this version or class has no such argument")]


def made(first: int, second: int = 2, *, third: int = 3) -> tuple[int, int, int]:
    """Refuses a negative third."""
    if third < 0:
        raise ValueError("negative")
    return first, second, third


def _call(*args: Any, **kwargs: Any) -> ConstructorCall:
    return ConstructorCall(inspect.signature(made), args, kwargs)


def test_a_value_goes_where_the_script_gave_it_and_what_raises_is_made_as_it_was() -> None:
    changed = _call(1, 5).with_values({"second": 7, "third": 8})
    assert (changed.args, dict(changed.kwargs)) == ((1, 7), {"third": 8})
    assert _call(1, 5).arguments() == {"first": 1, "second": 5, "third": 3} and _call().arguments() is None
    assert _call(1).takes("third") and not _call(1).takes("fourth")
    errors: list[Exception] = []
    call = _call(1)
    assert first_that_works(made, call.with_values({"third": -1}), call, errors.append) == (1, 2, 3)
    assert [str(error) for error in errors] == ["negative"]
    with pytest.raises(ValueError, match="negative"):
        first_that_works(made, _call(1, third=-2), _call(1, third=-1), errors.append)
    with pytest.raises(KeyboardInterrupt):
        first_that_works(Mock(side_effect=KeyboardInterrupt), call, call, errors.append)
