"""Messages of CPU ranks: whom they join, and how long they hold the rank that waits for them."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cpu_pipeline import Pipeline

from ddprof.analyzers.facts.cpu.messages import cpu_messages, holding
from ddprof.analyzers.facts.model import COMMS
from ddprof.analyzers.facts.names import OP_CODE
from ddprof.model import MESSAGE_CALLS, ProcessGroup
from ddprof.readers import discover, read
from ddprof.tables import NULL, Table

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
    assert spans == [(0, 0, 10), (0, 120, 130), (1, 200, 210), (1, 220, 280), (2, 220, 230), (2, 220, 300), (3, 0, 500)]


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
