"""`ddprof.step()` and `ddprof.annotate`: nothing without a capture, and what they ask of one."""

import importlib
import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

import ddprof


class Capture:
    """The session's interface for marks."""

    def __init__(self) -> None:
        say = (said := list[str]()).append
        self.said = said
        self.in_code = SimpleNamespace(asked=lambda steps: say(f"trace {steps}"), done=lambda: say("trace ends"))

    def step_marked(self) -> None:
        self.said.append("step")

    def open_range(self, name: str) -> Any:
        self.said.append(f"open {name}")
        return SimpleNamespace(close=lambda: self.said.append(f"close {name}"))


@pytest.fixture
def capture(monkeypatch: pytest.MonkeyPatch) -> Capture:
    session = Capture()
    monkeypatch.setitem(sys.modules, "_ddprof.capture.bootstrap", SimpleNamespace(active=session))
    return session


def test_a_script_says_where_its_steps_and_parts_end_even_by_an_error(capture: Capture) -> None:
    ddprof.step()
    with ddprof.annotate("metrics"):
        ddprof.step()
    with pytest.raises(KeyError), ddprof.annotate("lookup"):
        raise KeyError
    assert capture.said == ["step", "open metrics", "step", "close metrics", "open lookup", "close lookup"]


def test_a_decorated_function_may_call_itself_and_run_in_threads(capture: Capture) -> None:
    @ddprof.annotate("part")
    def part(depth: int) -> int:
        return depth and part(depth - 1)

    for _ in range(2):
        thread = threading.Thread(target=part, args=(2,))
        thread.start()
        thread.join()
    assert capture.said == (["open part"] * 3 + ["close part"] * 3) * 2


def test_a_script_says_which_steps_to_trace_and_the_package_of_that_name_answers_a_call(capture: Capture) -> None:
    @ddprof.capture(steps=3)
    def part() -> int:
        ddprof.step()
        return 7

    with pytest.raises(KeyError), ddprof.capture():
        assert part() == 7
        raise KeyError
    assert capture.said == ["trace 5", "trace 3", "step", "trace ends", "trace ends"]
    with pytest.raises(ValueError, match="steps=0"):
        ddprof.capture(steps=0)
    layout = importlib.import_module("ddprof.capture.files.layout")
    assert ddprof.capture.files.layout is layout  # type: ignore[attr-defined]
    with ddprof.capture(2):
        pass
    assert capture.said[5:] == ["trace 2", "trace ends"]


def test_without_a_capture_they_do_nothing_and_nothing_heavy_is_imported() -> None:
    script = (
        "import sys, ddprof; ddprof.step()\n"
        "with ddprof.annotate('x'): ddprof.annotate('y')(ddprof.capture()(int))()\n"
        "print(sorted({'numpy', 'torch', 'msgspec', 'ddprof.capture'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "[]\n"
