"""Reading c10d's flight recorder from a thread of ours."""

import pickle
import sys
from types import ModuleType
from typing import Any

import pytest

from ddprof.capture.window import flight_recorder

COMPILER = ("torch", "torch._inductor", "torch._inductor.codecache")


class Recorder(ModuleType):
    """A flight recorder that notes whether it was asked for stacks."""

    asked_for_stacks: bool | None = None

    def _dump_fr_trace(self, includeCollectives: bool, includeStackTraces: bool, onlyActive: bool) -> bytes:
        self.asked_for_stacks = includeStackTraces
        return pickle.dumps({"entries": []})


@pytest.mark.parametrize(
    ("imported", "under_way", "asks"),
    [
        (COMPILER, (), True),
        (COMPILER[:1], (), False),
        (COMPILER[:2], (), False),
        (COMPILER, COMPILER[2:], False),
        (COMPILER, COMPILER[1:2], False),
    ],
)
def test_stacks_never_make_torch_import_its_compiler(
    monkeypatch: pytest.MonkeyPatch, imported: tuple[str, ...], under_way: tuple[str, ...], asks: bool
) -> None:
    """The script may be importing it at this moment: two threads that import modules which need one another fail."""
    recorder = Recorder("torch._C._distributed_c10d")
    monkeypatch.setitem(sys.modules, recorder.__name__, recorder)
    for name in COMPILER:
        monkeypatch.delitem(sys.modules, name, raising=False)
    for name in imported:
        module: Any = ModuleType(name)
        module.__spec__ = type("Spec", (), {"_initializing": name in under_way})()
        monkeypatch.setitem(sys.modules, name, module)
    assert flight_recorder.read_entries(stacks=True) == {"entries": []} and recorder.asked_for_stacks is asks
