"""Process groups that the trace abbreviates."""

from __future__ import annotations

from pathlib import Path

import kineto_text as kt
import pytest
from kineto_traces import trace_of

pytestmark = pytest.mark.usefixtures("decoding")


@pytest.mark.parametrize(
    ("start", "stride", "size", "ranks"),
    [(0, 1, 64, tuple(range(64))), (3, 8, 4, (3, 11, 19, 27)), (5, -1, 64, ()), (7, 0, 1, (7,))],
)
def test_abbreviated_groups_come_from_start_and_stride(
    tmp_path: Path, start: int, stride: int, size: int, ranks: tuple[int, ...]
) -> None:
    arguments = {
        "Collective name": "allreduce",
        "Group size": size,
        "Process Group Name": "g",
        "Process Group Ranks": "[0, 1, 2, ..., 63]",
        "Global rank start": start,
        "Global rank stride": stride,
    }
    trace = trace_of(tmp_path / "t.json", [kt.span("record_param_comms", 0, 10, **arguments)])
    assert [g.ranks for g in trace.process_groups] == [ranks]
    assert trace.process_groups[0].size == size
