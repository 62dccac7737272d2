"""axe-core on the page that is open: its engine comes with the PyPI package axe-core-python (MPL 2.0)."""

from __future__ import annotations

import importlib.util
import os
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest


@lru_cache(maxsize=1)
def engine() -> str:
    """The script: of the file that DDPROF_AXE names (axe.min.js of a newer axe-core), else of the package."""
    stated = os.environ.get("DDPROF_AXE")
    package = importlib.util.find_spec("axe_core_python")
    if not stated and (package is None or package.origin is None):
        pytest.skip("axe-core-python is not installed (pip install -e '.[dev]')")
    file = Path(stated) if stated else Path(str(package and package.origin)).with_name("axe.min.js")
    return file.read_text(encoding="utf-8")


def serious(chromium: Any) -> list[tuple[str, str]]:
    """What axe-core calls serious or critical on the page that is open: (rule, the first element)."""
    chromium.execute_script(engine())
    found = chromium.execute_async_script("const done = arguments[0]; axe.run().then(r => done(r.violations))")
    return [(v["id"], v["nodes"][0]["html"][:200]) for v in found if v["impact"] in ("serious", "critical")]
