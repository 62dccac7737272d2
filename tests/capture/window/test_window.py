"""Trace windows: when they open and close, what a long job keeps of them, and c10d's flight recorder."""

import gc
import os
import pickle
import sys
import threading
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from ddprof.capture.files.control import INSTRUMENTS, LESS, Request
from ddprof.capture.window import flight_recorder
from ddprof.capture.window.annotate import Annotator
from ddprof.capture.window.plan import Less, WindowPlan
from ddprof.capture.window.trace import TraceWindow, warm_import


def test_windows_open_as_planned_or_asked_for_and_end_where_the_script_says() -> None:
    def windows(plan: WindowPlan, steps: int) -> list[tuple[int, int]]:
        found, opened = [], None
        for index in range(1, steps):
            if opened is not None and plan.closes_at(index):
                found.append((opened, index - 1))
                opened = None
            if opened is None and plan.opens_at(index):
                opened = index
        return found

    asked = WindowPlan(5, 5, automatic=False)
    assert windows(asked, 100) == []
    asked.request(50, 2, "asked for")
    assert windows(asked, 100) == [(50, 51)]
    assert windows(WindowPlan(5, 5), 100) == [(5, 9)]
    assert windows(WindowPlan(5, 5, 20), 60) == [(5, 9), (25, 29), (45, 49)]
    assert windows(WindowPlan(2, 3, 1), 16)[:2] == [(2, 4), (6, 8)]  # at least one bare step between two windows
    plan = WindowPlan(5, 3)
    assert plan.opens_at(5) == "planned" and plan.last_step == 7 and not plan.closes_at(7)
    plan = WindowPlan(3, 2, automatic=False)
    assert plan.idle
    plan.request(10, 1, "asked for")
    assert not plan.idle and plan.opens_at(12) == "asked for" and plan.idle and not WindowPlan(3, 2).idle
    plan = WindowPlan(3, 5, automatic=False)
    plan.request(10, 5, "asked for")
    assert plan.opens_at(10) and plan.last_step == 14 and not plan.end_with(11)
    assert (plan.last_step, plan.closes_at(11), plan.closes_at(12)) == (11, False, True)
    plan.end_with(20)
    assert plan.last_step == 11  # never longer
    plan.request(30, 2, "asked for")
    assert plan.end_with(29) and plan.idle and plan.opens_at(30) is None


def test_windows_leave_out_what_is_asked_for_from_the_same_step_on_every_rank() -> None:
    plan = WindowPlan(5, 5, 20)
    for first_step, count in ((20, 1), (60, 2)):
        plan.obey(Request(LESS, first_step, count, "too much"))
    assert [plan.less_at(step) for step in (59, 60)] == [Less(20, 1, "too much"), Less(60, 2, "too much")]


@pytest.mark.torch
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


@pytest.mark.torch
def test_a_path_that_the_export_cannot_take_costs_the_trace_alone(tmp_path: Path) -> None:
    """A path that is not UTF-8, for one."""
    notes: list[str] = []
    window = TraceWindow(Annotator(), notes.append, record_shapes=False)
    window._profiler = Mock(profiler=SimpleNamespace(kineto_results=SimpleNamespace(trace_start_ns=lambda: 1)))
    window._profiler.export_chrome_trace.side_effect = TypeError("incompatible function arguments")
    record = window.close(tmp_path / "rank0", 9)
    assert record is not None and record["trace_path"] is None
    assert "export failed: incompatible function arguments" in notes[0]


COMPILER = ("torch", "torch._inductor", "torch._inductor.codecache")
WHOLE = "whole whole whole"


@pytest.mark.parametrize("state", [WHOLE, "whole", "whole whole", "whole whole begun", "whole begun whole"])
def test_stacks_never_make_torch_import_its_compiler(monkeypatch: pytest.MonkeyPatch, state: str) -> None:
    """The script may be importing it at this moment: two threads that import modules which need one another fail."""
    asked: list[dict[str, bool]] = []
    recorder: Any = ModuleType("torch._C._distributed_c10d")
    recorder._dump_fr_trace = lambda **given: asked.append(given) or pickle.dumps({"entries": []})
    monkeypatch.setitem(sys.modules, recorder.__name__, recorder)
    for name in COMPILER:
        monkeypatch.delitem(sys.modules, name, raising=False)
    for name, how in zip(COMPILER, state.split(), strict=False):
        module: Any = ModuleType(name)
        module.__spec__ = type("Spec", (), {"_initializing": how == "begun"})()
        monkeypatch.setitem(sys.modules, name, module)
    assert flight_recorder.read_entries(stacks=True) == {"entries": []}
    assert [given["includeStackTraces"] for given in asked] == [state == WHOLE]


@pytest.mark.parametrize(
    ("cuda", "given", "told"), [("13.0", "", "1"), ("12.6", "0", "0"), ("12.4", "", ""), (None, "", "")]
)
def test_cupti_leaves_where_it_can(monkeypatch: pytest.MonkeyPatch, cuda: str | None, given: str, told: str) -> None:
    monkeypatch.setattr("torch.version.cuda", cuda)
    monkeypatch.setattr(os, "environ", {"TEARDOWN_CUPTI": given} if given else {})
    warm_import()
    assert os.environ.get("TEARDOWN_CUPTI", "") == told
