"""The digest of what optimizers hold: the same for the same bits, another one where any bit differs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from ddprof.capture.trial import parameters  # noqa: E402

pytestmark = pytest.mark.torch


def _held(*tensors: Any) -> dict[str, Any]:
    return parameters.held([SimpleNamespace(param_groups=[{"params": list(tensors)}])])


def _tensors(dtype: Any) -> Any:
    values = torch.arange(1.0, 25.0).reshape(2, 3, 4)
    return values.to(dtype)


@pytest.mark.parametrize("name", ["float32", "float64", "bfloat16", "float16", "complex64", "float8_e4m3fn"])
def test_one_element_that_differs_gives_another_digest(name: str) -> None:
    dtype = getattr(torch, name)
    before, after = _tensors(dtype), _tensors(dtype)
    assert _held(before)["digest"] == _held(after)["digest"]
    after[1, 2, 3] = _tensors(dtype)[0, 0, 0]
    assert _held(before)["digest"] != _held(after)["digest"]


def test_exchanged_elements_and_another_order_of_tensors_give_another_digest() -> None:
    first, second = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([2.0, 1.0, 3.0])
    assert len({_held(*pair)["digest"] for pair in ((first, second), (second, first), (first, first))}) == 3


def test_a_chunk_after_the_first_counts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = _held(torch.arange(100.0))["digest"]
    monkeypatch.setattr(parameters, "_CHUNK", 7)
    assert _held(torch.arange(100.0))["digest"] == whole
    changed = torch.arange(100.0)
    changed[99] = 0
    assert _held(changed)["digest"] != whole


def test_values_that_do_not_lie_in_a_row_are_read_and_each_tensor_counts_once() -> None:
    laid = torch.arange(24.0).reshape(2, 3, 4)
    found = _held(laid.transpose(0, 2), laid)
    assert found["tensors"] == 2 and found["size_bytes"] == 2 * 24 * 4
    assert _held(laid, laid) == _held(laid)


def test_the_sample_is_small_finite_and_from_fixed_places() -> None:
    tensors = [torch.full((100,), float(n)) for n in range(1000)]
    tensors[0][0] = float("nan")
    found = _held(*tensors)
    assert found["sample"] == _held(*tensors)["sample"] and len(found["sample"]) <= 256 * 16
    assert found["sample"][0] == 0.0
    assert _held() == {"tensors": 0, "size_bytes": 0, "digest": _held()["digest"], "sample": []}
