"""Collectives of a CPU rank find their calls, also where a backend of several threads begins them in another order."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cpu_pipeline import Pipeline
from gloo_traces import TENSOR, Events, in_steps, operator, transfer

from ddprof.analyzers.facts.cpu.operators import first_elements
from ddprof.analyzers.facts.cpu.rank import cpu_messages, holding
from ddprof.analyzers.facts.model import COMMS
from ddprof.analyzers.facts.names import OP_CODE
from ddprof.model import MESSAGE_CALLS, ProcessGroup
from ddprof.readers import discover, read
from ddprof.tables import NULL, Table

LARGE, SMALL = 35_332, 4
HOOK_US = 25_000.0
EVAL, STORES = "autograd::engine::evaluate_function: ", "torch::autograd::AccumulateGrad"


def given(shape: Any) -> dict[str, Any]:
    return {"Input Dims": [shape, []], "Input type": ["float", ""]}


def test_a_collective_is_of_the_call_of_its_size(tmp_path: Path) -> None:
    """Two ranks that call a large and then a small all-reduce in each step; rank 1 begins the small one first."""

    def play(rank: int, at: float) -> Events:
        first, second = (LARGE, SMALL) if rank == 0 else (SMALL, LARGE)
        return [
            operator(rank, "aten::mm", at + 100, 3_000.0),
            operator(rank, "c10d::allreduce_", at + 3_200, 60.0, **given([[LARGE]])),
            operator(rank, "c10d::allreduce_", at + 3_300, 60.0, **given([[SMALL]])),
            transfer(rank, "gloo:all_reduce", at + 3_400, 500.0, **given([first])),
            transfer(rank, "gloo:all_reduce", at + 3_950, 500.0, **given([second])),
            operator(rank, "aten::add_", at + 4_600, 5_000.0),
        ]

    for comms in (facts.comms for facts in in_steps(tmp_path / "run", 3, 10_000.0, play).job.ranks):
        assert comms["size_bytes"][comms["launch_ns"].argsort()].tolist() == [4 * LARGE, 4 * SMALL] * 3


ELEMENTS = {
    "[[35, 2], []]": 70,
    "[[[70]], []]": 70,
    "[[[3, 5], [4]]]": 19,
    "[[]]": 1,
    "[]": None,
    "no": None,
    "{}": None,
}


@pytest.mark.parametrize("shapes", ELEMENTS)
def test_elements_of_the_first_argument(shapes: str) -> None:
    assert first_elements(shapes) == ELEMENTS[shapes]


@pytest.mark.parametrize(
    ("node", "calls", "cause"),
    [
        *((f"{EVAL}{name}", ("aten::threshold_backward",), "host_launch") for name in ("ReluBackward0", STORES)),
        ("ScaleBackward", ("aten::threshold_backward",), "host_launch"),
        ("aten::linear_backward", ("aten::mm",), "compute"),  # an operator computes by itself
        ("CompiledFunctionBackward", ("aten::mm",), "compute"),  # a compiled region, too
        ("AddmmBackward0", (), "compute"),  # which shows nothing that it calls
    ],
)
def test_a_hook_is_python_of_its_rank_and_what_computes_is_computing(
    tmp_path: Path, node: str, calls: tuple[str, ...], cause: str
) -> None:
    """A node of the backward pass lasts 25 ms longer on rank 1, where a hook may run before it `calls`."""

    def play(rank: int, at: float) -> Events:
        begun, held = at + 10_000, HOOK_US * rank
        return [
            operator(rank, "aten::linear", at + 100, 9_000.0, **TENSOR),
            operator(rank, node, begun, held + 4_000.0, **TENSOR),
            *(operator(rank, call, begun + held + 50, 3_900.0, **TENSOR) for call in calls),
            operator(rank, "c10d::allreduce_", begun + held + 5_000, 60.0, **TENSOR),
            transfer(rank, "gloo:all_reduce", begun + held + 5_000, 26_500 - held, **TENSOR),
            operator(rank, "aten::_foreach_add_", at + 42_000, 500.0, **TENSOR),
        ]

    report = in_steps(tmp_path / "run", 5, 60_000.0, play).report
    ledger = report.ledger.per_rank
    assert ledger[1][cause] - ledger[0][cause] == pytest.approx(HOOK_US, rel=0.1)
    if cause == "host_launch":
        assert ledger[1]["compute"] == pytest.approx(ledger[0]["compute"], rel=0.02)
        assert (report.findings[0].id, report.findings[0].ranks) == ("straggler.host", (1,))


WORK_US = 30_000.0


def table(rows: Sequence[tuple[str, int, int, int]]) -> Table:
    """COMMS of (operation, call, return of the call, end)."""
    missing = {c.name: np.full(len(rows), NULL if c.dtype == "int64" else 0) for c in COMMS.columns}
    op, call, returned, end = zip(*rows, strict=True)
    times = {"start_ns": call, "launch_ns": call, "launch_end_ns": returned, "end_ns": end}
    return COMMS.table({**missing, **times, "op": [OP_CODE[name] for name in op]})


def test_a_message_holds_its_rank_only_while_it_is_waited_for() -> None:
    """Sent early and waited for after the next operator; then a batch; a collective as it is."""
    comms = table([("send", 0, 10, 130), ("send", 200, 210, 280), ("recv", 220, 230, 300), ("all_reduce", 0, 10, 500)])
    held, of = holding(comms, (np.array([20, 140]), np.array([120, 190])))
    spans = sorted(zip(of.tolist(), held["start_ns"].tolist(), held["end_ns"].tolist(), strict=True))
    assert spans == [(0, 0, 10), (0, 120, 130), (1, 200, 210), (1, 220, 280), (2, 220, 230), (2, 280, 300), (3, 0, 500)]


ALL, LINE, OTHER = ("default_pg", (0, 1, 2, 3)), ("undefined", (1, 3)), ("undefined", (2, 3))


@pytest.mark.parametrize(
    ("groups", "peer"),
    [([ALL], 0), ([ALL, ("mesh_pp", (1, 3)), ("mesh_dp", (2, 3))], 1), ([LINE], 1), ([LINE, OTHER], 0)],
    ids=["of all ranks", "of the pipeline", "the only one", "one of two"],
)
def test_peers_are_places_in_a_group(tmp_path: Path, groups: list[tuple[str, tuple[int, ...]]], peer: int) -> None:
    sources = discover([str(Pipeline([WORK_US] * 4, 4, steps=1).write(tmp_path))]).sources
    trace = next(read(source) for source in sources if "rank3" in source.path)
    calls = MESSAGE_CALLS.table({"row": [7], "peer": [0], "tag": [2]})
    told = tuple(ProcessGroup(str(at), description, ranks) for at, (description, ranks) in enumerate(groups))
    trace = replace(trace, message_calls=calls, process_groups=told)
    comms, messages = cpu_messages(trace, table([("all_reduce", 0, 1, 2), ("recv", 3, 4, 5)]), np.array([-1, 7]))
    known = {"comm": 1, "is_send": False, "peer": peer, "tag": 2, "is_lost": False, "group": messages["group"][0]}
    assert next(iter(messages.rows())) == {**known, "size_bytes": None, "called_ns": None}
    assert comms["group"][1] == messages["group"][0]
