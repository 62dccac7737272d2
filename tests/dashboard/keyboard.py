"""A walk through a page with the Tab key alone: what it does not reach, where the focus is not seen or is stuck."""

import itertools
from dataclasses import dataclass

from tests.dashboard.browsing import TAB, Page

# Numbers all controls, and looks at every Tab what had the focus until then, and whether that was seen: an outline,
# on an element that is inside the window.
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
