"""Which call each collective of a CPU rank is of, where a backend of several threads begins them in another order."""

from pathlib import Path
from typing import Any

import pytest
from gloo_traces import Events, in_steps, operator, transfer

from ddprof.analyzers.facts.cpu.operators import first_elements
from ddprof.analyzers.facts.model import RankFacts

LARGE, SMALL = 35_332, 4


def given(shape: Any) -> dict[str, Any]:
    return {"Input Dims": [shape, []], "Input type": ["float", ""]}


def ranks(folder: Path) -> tuple[RankFacts, ...]:
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

    return in_steps(folder, 3, 10_000.0, play).job.ranks


def test_a_collective_is_of_the_call_of_its_size(tmp_path: Path) -> None:
    for facts in ranks(tmp_path / "run"):
        comms = facts.comms
        order = comms["launch_ns"].argsort()
        assert comms["size_bytes"][order].tolist() == [4 * LARGE, 4 * SMALL] * 3


@pytest.mark.parametrize(
    ("shapes", "elements"),
    [
        *(("[[35, 2], []]", 70), ("[[[70]], []]", 70), ("[[[3, 5], [4]]]", 19), ("[[]]", 1)),
        *((odd, None) for odd in ("[]", "no", "{}")),
    ],
)
def test_elements_of_the_first_argument(shapes: str, elements: int | None) -> None:
    assert first_elements(shapes) == elements
