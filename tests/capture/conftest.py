"""Real captured runs shared by the tests of this folder."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))  # `runs` is a helper of this folder, not a package

from runs import Captured, ddprof_run, script


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that start torch processes need torch."""
    if importlib.util.find_spec("torch") is None:
        for item in items:
            if item.get_closest_marker("torch"):
                item.add_marker(pytest.mark.skip(reason="torch is not installed"))


@pytest.fixture(scope="session", params=["1", "0"], ids=["timers in C", "timers in Python"])
def healthy(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Captured:
    """Fourteen steps of the small DDP loop on two ranks."""
    return ddprof_run(tmp_path_factory.mktemp("healthy"), script("loop.py"), DDPROF_NATIVE=request.param)
