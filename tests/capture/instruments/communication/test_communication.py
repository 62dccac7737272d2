"""Time in calls of torch.distributed in a job of one rank, waits included, and ranges of Python communication hooks."""

import functools
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hubs import installed, make_hub

from ddprof.capture.files.step import COLLECTIVE
from ddprof.capture.instruments.communication.collectives import WAIT_RANGE, Collectives
from ddprof.capture.instruments.communication.comm_hooks import CommHooks

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
