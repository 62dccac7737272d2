"""Calls of torch.distributed in a job of one rank, recorded and timed, waits included, and ranges of Python hooks."""

import functools
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hubs import installed, make_hub

from ddprof.capture.files.call_log import CallLog
from ddprof.capture.files.step import COLLECTIVE
from ddprof.capture.instruments.communication.collectives import WAIT_RANGE, CallRecord, CallState, Collectives
from ddprof.capture.instruments.communication.comm_hooks import CommHooks
from ddprof.capture.journal import Journal

pytestmark = pytest.mark.torch


@pytest.mark.filterwarnings("ignore:.*deprecated:FutureWarning")
def test_a_call_and_the_wait_for_it_are_timed_once_each(tmp_path: Path) -> None:
    dist = pytest.importorskip("torch.distributed")
    torch, begun, depth = sys.modules["torch"], list[str](), [0]

    def begin(phase: int, name: str) -> bool:
        assert phase == COLLECTIVE
        depth[0] += 1
        if depth[0] == 1:
            begun.append(name.removeprefix("ddprof::collective."))
        return depth[0] == 1

    def end(phase: int, token: Any) -> None:
        depth[0] -= 1

    waits = dist.Work.wait
    instrument = Collectives(make_hub(begin=begin, end=end, calls=None, process_group_exists=lambda: None))
    instrument._ask_nccl = lambda _: None  # type: ignore[method-assign]
    with installed(instrument, torch):
        dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
        dist.all_reduce(torch.ones(2))
        dist.all_reduce(torch.ones(2), async_op=True).wait()
        assert "/instruments/communication/" in dist.Work.wait.__code__.co_filename  # the analysis knows a wait by it
        dist.all_gather_into_tensor(torch.empty(2), torch.ones(2))
        dist.destroy_process_group()
    renamed = "all_gather_single" if hasattr(dist, "all_gather_single") else "all_gather_into_tensor"
    assert begun == ["all_reduce", "all_reduce", WAIT_RANGE.removeprefix("ddprof::collective."), renamed]
    assert dist.Work.wait is waits and not depth[0]


def compress(state: Any, bucket: Any) -> tuple[Any, Any]:
    return state, bucket


class Counter:
    def __call__(self, state: Any, bucket: Any) -> tuple[Any, Any]:
        return state, bucket


def registered(hook: Any, listening: bool = True) -> tuple[Any, list[str]]:
    """The hook that the reducer gets, and the ranges that its calls open and close."""
    ranges: list[str] = []

    opened = SimpleNamespace(close=lambda: ranges.append("closed"))
    annotator = SimpleNamespace(listening=listening, open=lambda name: ranges.append(name) or opened)
    given: list[Any] = []
    distributed: Any = SimpleNamespace(_register_comm_hook=lambda reducer, state, hook: given.append(hook))
    with installed(CommHooks(make_hub(annotator=annotator)), distributed):
        distributed._register_comm_hook(None, None, hook)
    return given[0], ranges


@pytest.mark.parametrize("hook", [compress, functools.partial(compress), Counter()])
def test_a_call_in_a_window_is_named_by_file_line_and_function(hook: Any) -> None:
    given, ranges = registered(hook)
    function = "__call__()" if isinstance(hook, Counter) else "compress()"
    assert given("state", "bucket") == ("state", "bucket") and ranges[0].startswith("ddprof::comm_hook ")
    assert ranges[0].endswith(function) and "test_communication.py:" in ranges[0] and ranges[1:] == ["closed"]


def test_outside_windows_and_of_torchs_hooks_nothing_is_recorded_and_a_failure_ends_its_range() -> None:
    given, ranges = registered(compress, listening=False)
    assert given("state", "bucket") == ("state", "bucket") and ranges == []
    hooks = pytest.importorskip("torch.distributed.algorithms.ddp_comm_hooks.default_hooks")
    assert registered(hooks.fp16_compress_hook)[0] is hooks.fp16_compress_hook

    def fails(state: Any, bucket: Any) -> None:
        raise ValueError(state, bucket)

    given, ranges = registered(fails)
    with pytest.raises(ValueError, match="state"):
        given("state", "bucket")
    assert ranges[1:] == ["closed"]


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
    those of torch that call its modules."""
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
