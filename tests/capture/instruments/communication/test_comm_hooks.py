"""Python communication hooks get a range with their function; those of libraries and the reducer's are left alone."""

import functools
from types import SimpleNamespace
from typing import Any

import pytest
from hubs import installed, make_hub

from ddprof.capture.instruments.communication.comm_hooks import CommHooks

pytestmark = pytest.mark.torch


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
    assert ranges[0].endswith(function) and "test_comm_hooks.py:" in ranges[0] and ranges[1:] == ["closed"]


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
