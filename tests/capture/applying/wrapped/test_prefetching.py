"""Units of fully_shard that prefetch the next ones."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
source: Any = pytest.importorskip("torch.distributed.fsdp._fully_shard._fully_shard")
from appliers import applying, told  # noqa: E402

from ddprof.capture.applying.wrapped.prefetching import PrefetchApplier  # noqa: E402

pytestmark = pytest.mark.torch
BOTH = ("forward_prefetch_units=2", "backward_prefetch_units=1")
KEPT = ("_states_to_forward_prefetch", "_states_to_backward_prefetch")


def _model(layers: int) -> Any:
    model = torch.nn.Sequential(*[torch.nn.Linear(3, 3) for _ in range(layers)])
    for layer in model:
        source.fully_shard(layer)
    return source.fully_shard(model)


def _lists(model: Any, kept: str) -> list[list[int]]:
    layers = [layer._get_fsdp_state() for layer in model]
    return [[layers.index(state) for state in getattr(unit, kept)] for unit in layers]


def test_units_prefetch_those_that_come_next(alone: None) -> None:
    with applying(PrefetchApplier, *BOTH, of=(source.__name__,), module=source) as outcomes:
        model = _model(4)
        for _ in range(2):
            model(torch.ones(1, 3)).sum().backward()
    assert _lists(model, KEPT[0]) == [[1, 2], [2, 3], [3], []] and _lists(model, KEPT[1]) == [[], [0], [1], [2]]
    assert [(name, done) for name, done, _, _ in told(outcomes)] == [(text.partition("=")[0], True) for text in BOTH]


def test_lists_of_the_scripts_stay(alone: None) -> None:
    with applying(PrefetchApplier, *BOTH, of=(source.__name__,), module=source) as outcomes:
        model = _model(3)
        model[0].set_modules_to_forward_prefetch([model[2]])
        model(torch.ones(1, 3)).sum().backward()
    assert _lists(model, KEPT[0]) == [[2], [], []] and _lists(model, KEPT[1]) == [[], [0], [1]]
    assert [(name, done) for name, done, _, _ in told(outcomes)] == [
        ("forward_prefetch_units", False), ("backward_prefetch_units", True)
    ]  # fmt: skip


@pytest.mark.parametrize("layers", [0, 1])
def test_a_model_without_a_next_unit(alone: None, layers: int) -> None:
    with applying(PrefetchApplier, BOTH[0], of=(source.__name__,), module=source) as outcomes:
        model = _model(1) if layers else source.fully_shard(torch.nn.Linear(3, 3))
        model(torch.ones(1, 3)).sum().backward()
    assert told(outcomes) == [(
        "forward_prefetch_units", False, None, "it is the only unit: none comes before or after it"
    )]  # fmt: skip
