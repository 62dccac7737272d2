"""axe-core on the page that is open: its engine comes with the PyPI package axe-core-python (MPL 2.0)."""

import importlib.util
import os
from functools import lru_cache
from pathlib import Path

import pytest

from tests.dashboard.browsing import Page

# Details of what is in order are many and nobody's; a table's rows are alike, and thousands of cells take seconds.
_RUN = """
  const [many, done] = arguments;
  for (const body of document.querySelectorAll("tbody")) [...body.rows].slice(many).forEach((row) => row.remove());
  axe.run({ resultTypes: ["violations"] }).then((found) => done(found.violations))"""


@lru_cache(maxsize=1)
def engine() -> str:
    """The script: of the file that DDPROF_AXE names (axe.min.js of a newer axe-core), else of the package."""
    stated = os.environ.get("DDPROF_AXE")
    package = importlib.util.find_spec("axe_core_python")
    if not stated and (package is None or package.origin is None):
        pytest.skip("axe-core-python is not installed (pip install -e '.[dev]')")
    file = Path(stated) if stated else Path(str(package and package.origin)).with_name("axe.min.js")
    return file.read_text(encoding="utf-8")


def serious(page: Page, rows: int = 10) -> list[tuple[str, str]]:
    """Serious or critical findings of axe-core, with so many rows of each table: (rule, the first element)."""
    page.js(engine())
    found = page.browser.execute_async_script(_RUN, rows)
    return [(v["id"], v["nodes"][0]["html"][:200]) for v in found if v["impact"] in ("serious", "critical")]
