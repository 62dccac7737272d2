"""Python that runs inside an operator of a CPU rank is the script's, and no computing."""

from pathlib import Path

import pytest
from gloo_traces import TENSOR, Events, in_steps, operator, transfer

from ddprof.analyzers.engine import LoadedRun

PERIOD_US, HOOK_US = 60_000.0, 25_000.0
ENGINE = "autograd::engine::evaluate_function: "


def hooked(folder: Path, node: str, *calls: str) -> LoadedRun:
    """Two ranks whose node of the backward pass lasts 25 ms longer on rank 1, where a hook runs before it `calls`."""

    def play(rank: int, at: float) -> Events:
        held, begun = HOOK_US * rank, at + 10_000
        return [
            operator(rank, "aten::linear", at + 100, 9_000.0, **TENSOR),
            operator(rank, node, begun, held + 4_000.0, **TENSOR),
            *(operator(rank, call, begun + held + 50, 3_900.0, **TENSOR) for call in calls),
            operator(rank, "c10d::allreduce_", begun + held + 5_000, 60.0, **TENSOR),
            transfer(rank, "gloo:all_reduce", begun + held + 5_000, 26_500 - held, **TENSOR),
            operator(rank, "aten::_foreach_add_", at + 42_000, 500.0, **TENSOR),
        ]

    return in_steps(folder, 5, PERIOD_US, play)


@pytest.mark.parametrize(
    "node", [f"{ENGINE}ReluBackward0", "ScaleBackward", f"{ENGINE}torch::autograd::AccumulateGrad"]
)
def test_a_hook_is_python_of_its_rank(tmp_path: Path, node: str) -> None:
    run = hooked(tmp_path / "run", node, "aten::threshold_backward")
    ledger = run.report.ledger.per_rank
    assert ledger[1]["compute"] == pytest.approx(ledger[0]["compute"], rel=0.02)
    assert ledger[1]["host_launch"] - ledger[0]["host_launch"] == pytest.approx(HOOK_US, rel=0.1)
    found = run.report.findings[0]
    assert (found.id, found.ranks) == ("straggler.host", (1,))


@pytest.mark.parametrize(
    ("node", "calls"),
    [
        ("aten::linear_backward", ("aten::mm",)),  # an operator computes by itself
        ("CompiledFunctionBackward", ("aten::mm",)),  # a compiled region, too
        ("AddmmBackward0", ()),  # which shows nothing that it calls
    ],
)
def test_what_computes_is_computing(tmp_path: Path, node: str, calls: tuple[str, ...]) -> None:
    ledger = hooked(tmp_path / "run", node, *calls).report.ledger.per_rank
    assert ledger[1]["compute"] - ledger[0]["compute"] == pytest.approx(HOOK_US, rel=0.1)
