"""Two looks at the page that is open: what axe-core has against it, and a walk through it with the Tab key alone."""

import itertools
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pytest

from tests.dashboard.browsing import TAB, Page

# Details of what is in order are many and nobody's; a table's rows are alike, and thousands of cells take seconds.
_RUN = """
  const [many, done] = arguments;
  for (const body of document.querySelectorAll("tbody")) [...body.rows].slice(many).forEach((row) => row.remove());
  axe.run({ resultTypes: ["violations"] }).then((found) => done(found.violations))"""


@lru_cache(maxsize=1)
def engine() -> str:
    """The script: of the file that DDPROF_AXE names (a newer axe.min.js), else of axe-core-python (MPL 2.0)."""
    if stated := os.environ.get("DDPROF_AXE"):
        return Path(stated).read_text(encoding="utf-8")
    missing = "axe-core-python is not installed (pip install -e '.[dev]')"
    package = pytest.importorskip("axe_core_python", reason=missing)
    return Path(package.__file__).with_name("axe.min.js").read_text(encoding="utf-8")


def serious(page: Page, rows: int = 10) -> list[tuple[str, str]]:
    """Serious or critical findings of axe-core, with so many rows of each table: (rule, the first element)."""
    page.js(engine())
    violations = page.browser.execute_async_script(_RUN, rows)
    return [(v["id"], v["nodes"][0]["html"][:200]) for v in violations if v["impact"] in ("serious", "critical")]


# Numbers all controls, and looks at every Tab what had the focus and whether that was seen: outlined, in the window.
_BEGIN = """
  const kinds = "a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex='0']";
  const shown = (e) => e.checkVisibility({ visibilityProperty: true, contentVisibilityAuto: true }) && !e.disabled;
  const found = [...document.querySelectorAll(kinds)].filter(shown);
  found.forEach((e, i) => { e.dataset.walk = String(i); });
  document.activeElement.blur();
  window.scrollTo(0, 0);
  window.getSelection().removeAllRanges();
  window.removeEventListener("keydown", window.lookAtFocus, true);
  window.walked = [];
  window.lookAtFocus = () => {
    const e = document.activeElement;
    if (!e || e === document.body) { walked.push(null); return; }
    const style = getComputedStyle(e), outline = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1;
    const box = e.getBoundingClientRect();
    const inside = box.bottom > 0 && box.right > 0 && box.top < innerHeight && box.left < innerWidth;
    walked.push({ walk: e.dataset.walk ?? null, seen: outline && inside, html: e.outerHTML.slice(0, 120) });
  };
  window.addEventListener("keydown", window.lookAtFocus, true);
  return found.map((e) => e.outerHTML.slice(0, 120));
"""


@dataclass(frozen=True)
class Walk:
    """`controls`: how many there are; the other three name those with a defect, as the start of their HTML."""

    controls: int
    missed: list[str]
    unseen: list[str]
    stuck: list[str]


def walk(page: Page) -> Walk:
    """Press Tab from the top of the page until every control had its turn or twice as many keys were pressed."""
    controls, focused = page.js(_BEGIN), []
    for _ in range(2):
        page.hands.send_keys(TAB * (len(controls) + 5)).perform()
        focused = page.js("lookAtFocus(); return walked.slice(1)")  # the first look was before the first key
        reached = {step["walk"] for step in focused if step}
        is_whole = reached >= {str(i) for i in range(len(controls))}
        if is_whole and all(step["seen"] for step in focused if step):
            break
        page.js("walked.length = 1" if is_whole else "walked.pop()")  # a chart that came meanwhile moved a control
    pairs = [(a["walk"], b) for a, b in itertools.pairwise(focused) if a and b]
    stuck = [step["html"] for before, step in pairs if step["walk"] == before is not None]
    unseen = [step["html"] for step in focused if step and not step["seen"]]
    return Walk(len(controls), [html for i, html in enumerate(controls) if str(i) not in reached], unseen, stuck)
