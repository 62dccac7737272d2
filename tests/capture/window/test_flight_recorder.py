"""Reading c10d's flight recorder from a thread of ours."""

import pickle
import sys
from types import ModuleType
from typing import Any

import pytest

from ddprof.capture.window import flight_recorder

COMPILER = ("torch", "torch._inductor", "torch._inductor.codecache")


@pytest.mark.parametrize(
    "state", ["whole whole whole", "whole", "whole whole", "whole whole begun", "whole begun whole"]
)
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
    assert [given["includeStackTraces"] for given in asked] == [state == "whole whole whole"]
