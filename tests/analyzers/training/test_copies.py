"""Ranks that should hold equal parameters and buffers, and those that differ."""

from typing import Any

import pytest
from training.jobs import held, job, said


def test_equal_copies_are_silent_the_odd_rank_is_named_and_rounding_is_called_so() -> None:
    for name in ("replicas_differ", "buffers_differ"):
        assert said(name, job(held("ab"), held("ab"))) == []
    (remark,) = said("replicas_differ", job(*(held(sums, ranks=(0, 1, 2, 3)) for sums in ("ab", "ab", "xb", "ab"))))
    assert remark.ranks == (2,)
    (remark,) = said("replicas_differ", job(held("a", values=[0.5]), held("b", values=[0.5000001])))
    assert "in their last bits" in remark.summary
    (remark,) = said("replicas_differ", job(held("a", values=[0.5]), held("b", values=[0.6])))
    assert "in their last bits" not in remark.summary


def test_a_differing_tensor_of_a_wrapped_model_is_named_with_its_line() -> None:
    (remark,) = said("replicas_differ", job(held("ab", values=[0.5, 0.25]), held("ac", values=[0.5, -0.25])))
    assert "Net" in remark.summary and "1 of 2 tensors" in remark.summary
    assert [evidence.text for evidence in remark.evidence] == [
        "after step 9: layer1.weight differ",
        "layer1.weight begins with 0.25 on rank 0, -0.25 on rank 1",
        "wrapped at train.py:7 main()",
    ]
    assert remark.ranks == ()  # of two ranks neither is the odd one


@pytest.mark.parametrize(
    "other",
    [
        held("ac", step=10),  # after another step
        held("ac", ranks=(1, 2)),  # a model of another group
        held("acd"),  # another model
        held(["a", "c", "d" * 7], sizes_bytes=[64, 128]),  # a damaged file
        {},
    ],
)
def test_what_is_not_comparable_is_not_compared(other: dict[str, Any]) -> None:
    assert said("replicas_differ", job(held("ab"), other)) == []


def test_models_outside_a_wrapper_are_compared_where_ranks_only_sum_gradients() -> None:
    ranks = [held(sums, kind="module") for sums in ("ab", "cd")]
    for sums in ((64, 128), (192,)):  # one by one, or all in one
        (remark,) = said("replicas_differ", job(*ranks, sums=sums))
        assert "2 of 2 tensors" in remark.summary and "broadcast" in remark.fixes[0].suggested
    for sums in ((), (64,), (32, 32)):  # an ensemble; experts that ranks own; activations of tensor parallelism
        assert said("replicas_differ", job(*ranks, sums=sums)) == []

    def rank(sums: str) -> dict[str, Any]:
        inside, outside = held("a"), held(sums, kind="module")
        return {"replicas": {"step": 9, "models": [*inside["replicas"]["models"], *outside["replicas"]["models"]]}}

    (remark,) = said("replicas_differ", job(rank("b"), rank("c"), ops=("all_reduce",)))
    assert "outside the DistributedDataParallel model" in remark.summary
    assert said("replicas_differ", job(rank("b"), rank("c"), ops=("all_to_all",))) == []


def test_buffers_differ_only_where_nothing_keeps_them_equal() -> None:
    def ranks(broadcast: bool) -> Any:
        return job(*(held(sums, buffers=[1], broadcast_buffers=broadcast) for sums in ("ab", "ac")))

    assert said("buffers_differ", ranks(True)) == said("replicas_differ", ranks(False)) == []
    (remark,) = said("buffers_differ", ranks(False))
    assert "1 buffer of Net" in remark.summary and "broadcast_buffers=False" in remark.summary
