"""Record of a call of torch.distributed, in a job of one rank."""

import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ddprof.capture.files.call_log import CallLog
from ddprof.capture.instruments.communication.call_record import CallRecord, CallState
from ddprof.capture.journal import Journal

pytestmark = pytest.mark.torch


@pytest.fixture
def c10d(alone: None) -> Any:
    return sys.modules["torch.distributed.distributed_c10d"]


def _book(c10d: Any, log: CallLog, name: str, state: CallState, *args: Any, raised: bool = False, **more: Any) -> None:
    record = CallRecord(SimpleNamespace(calls=log), name, getattr(c10d, name), c10d, state)  # type: ignore[arg-type]

    def called() -> None:
        record.leave(record.enter(args, more), raised)

    called()


def test_group_number_shape_and_line_of_calls_of_this_ranks_groups(c10d: Any, tmp_path: Path) -> None:
    torch, log, state = sys.modules["torch"], CallLog(tmp_path / "rank0.calls"), CallState()
    _book(c10d, log, "all_reduce", state, torch.ones(4, 8))
    _book(c10d, log, "barrier", state)
    _book(c10d, log, "send", state, torch.ones(3), 5)
    _book(c10d, log, "recv", state, torch.ones(3), src=5, raised=True)
    calls = log.recent()
    assert [(c["op"], c["number"], c["peer"], c["size"], c["done"]) for c in calls] == [
        ("all_reduce", 1, None, [4, 8], True),
        ("barrier", 2, None, None, True),
        ("send", 1, 5, [3], True),
        ("recv", 1, 5, [3], False),
    ]
    assert {c["group"] for c in calls} == {c10d._world.pg_names[c10d.GroupMember.WORLD]}
    assert {c["line"]["function"] for c in calls} <= {"called", "_book"}
    _book(c10d, log, "barrier", state, group=c10d.GroupMember.NON_GROUP_MEMBER)
    assert log.recent() == calls


def test_a_message_inside_a_message_is_one(c10d: Any, tmp_path: Path) -> None:
    torch, log, state = sys.modules["torch"], CallLog(tmp_path / "rank0.calls"), CallState()
    hub: Any = SimpleNamespace(calls=log, journal=SimpleNamespace(through={}))
    outer, inner = (CallRecord(hub, name, getattr(c10d, name), c10d, state) for name in ("send", "isend"))
    for _ in range(2):
        at = outer.enter((torch.ones(3), 1), {})
        assert inner.enter((torch.ones(3), 1), {}) is None
        inner.leave(None, False)
        outer.leave(at, False)
    assert [(c["op"], c["number"]) for c in log.recent()] == [("send", 1), ("send", 2)]


def test_the_library_between_the_script_and_the_collective_is_noted(c10d: Any, tmp_path: Path) -> None:
    """Frames of a library such as torchmetrics lie between the script's line and torch.distributed, and before them
    those of torch that call its modules.
    """
    torch, log, journal = sys.modules["torch"], CallLog(tmp_path / "rank0.calls"), Journal()
    hub: Any = SimpleNamespace(calls=log, journal=journal)
    record = CallRecord(hub, "all_reduce", c10d.all_reduce, c10d, CallState())
    library: dict[str, Any] = {"__name__": "metrics.state", "record": record, "torch": torch}
    called = "record.leave(record.enter((torch.ones(2),), {}), False)"
    text = f"def reduce_all():\n    def timed():\n        {called}\n    timed()\n"
    exec(compile(text, "/site-packages/metrics/state.py", "exec"), library)
    metric = type("Metric", (torch.nn.Module,), {"forward": staticmethod(library["reduce_all"])})()
    metric()
    since_ns = time.time_ns()
    metric()
    journal.window_called(log.recent(), since_ns)
    (call,) = journal.window_calls
    here = "test_the_library_between_the_script_and_the_collective_is_noted"
    assert (call["op"], call["function"], call["through"]) == ("all_reduce", here, "metrics reduce_all")
    assert call["entered_ns"] >= since_ns
    first, second = journal.calling_lines(log.recent() + log.recent(), [0, since_ns])
    held_ns = 2 * sum(one["left_ns"] - one["entered_ns"] for one in log.recent()[:1])
    said = {"op": "all_reduce", "size": [2], "calls": 2, "through": "metrics reduce_all", "steps": 1}
    assert {name: first[name] for name in (*said, "taken_ns")} == said | {"taken_ns": held_ns}
    assert first["from_ns"] <= first["to_ns"] <= since_ns <= second["from_ns"] and first["line"] < second["line"]
