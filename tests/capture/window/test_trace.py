"""Trace windows opened again and again: what a long job with `--every N` keeps of them."""

import gc
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from ddprof.capture.files.control import INSTRUMENTS
from ddprof.capture.window.annotate import Annotator
from ddprof.capture.window.plan import Less
from ddprof.capture.window.trace import TraceWindow

pytestmark = pytest.mark.torch


def test_windows_leave_no_threads_behind(tmp_path: Path) -> None:
    pytest.importorskip("torch.profiler")
    notes: list[str] = []
    window = TraceWindow(Annotator(), notes.append, record_shapes=False)
    for number in range(4):
        assert window.open(number, "planned", Less(0, min(number, len(INSTRUMENTS))))
        record = window.close(tmp_path / f"rank0.{number}", number)
        assert record is not None and record["left_out"] == [*INSTRUMENTS][:number]
        assert record["trace_path"] == f"rank0.{number}.pt.trace.json.gz"
        deadline = time.monotonic() + 300
        while window.compressing and time.monotonic() < deadline:
            time.sleep(0.01)
    assert not window.open(9, "planned", Less(8, 3, "too much"))
    assert notes.pop() == "no trace windows from step 8 on: too much"
    gc.collect()
    kept = [thing for thing in gc.get_objects() if isinstance(thing, threading.Thread)]
    assert sum(thread.name == "ddprof-compress" for thread in kept) == 1
    assert len(list(tmp_path.glob("*.gz"))) == 4 and notes == []


def test_a_path_that_the_export_cannot_take_costs_the_trace_alone(tmp_path: Path) -> None:
    """A path that is not UTF-8, for one."""
    notes: list[str] = []
    window = TraceWindow(Annotator(), notes.append, record_shapes=False)
    results = SimpleNamespace(trace_start_ns=lambda: 1)
    window._profiler = Mock(profiler=SimpleNamespace(kineto_results=results))
    window._profiler.export_chrome_trace.side_effect = TypeError("incompatible function arguments")
    record = window.close(tmp_path / "rank0", 9)
    assert record is not None and record["trace_path"] is None
    assert "export failed: incompatible function arguments" in notes[0]
