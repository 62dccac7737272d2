"""The import hook calls back once a module is there, and leaves."""

import importlib
import sys
from pathlib import Path

import pytest

from ddprof.capture.import_hook import ImportHook


def test_import_hook_calls_back_after_the_import_and_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hooked_module_x.py").write_text("value = 41\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    before = list(sys.meta_path)
    seen: list[int] = []
    ImportHook().when_imported("hooked_module_x", lambda module: seen.append(module.value + 1))
    assert seen == []
    module = importlib.import_module("hooked_module_x")
    assert seen == [42]
    assert sys.meta_path == before
    assert module.__spec__ is not None
    assert "exec_module" not in vars(module.__spec__.loader)
    ImportHook().when_imported("hooked_module_x", lambda module: seen.append(module.value))
    assert seen == [42, 41]
