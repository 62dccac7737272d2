"""A walk through a page with the Tab key alone: what it does not reach, where the focus is not seen or is stuck."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_CONTROLS = """
  const kinds = "a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex='0']";
  const shown = (e) => e.checkVisibility({ visibilityProperty: true, contentVisibilityAuto: true }) && !e.disabled;
  const found = [...document.querySelectorAll(kinds)].filter(shown);
  found.forEach((e, i) => { e.dataset.walk = String(i); });
  document.activeElement.blur();
  window.scrollTo(0, 0);
  window.getSelection().removeAllRanges();
  return found.map((e) => e.outerHTML.slice(0, 120));
"""
# What has the focus, and whether that is seen: an outline, on an element that is inside the window.
_FOCUS = """
  const e = document.activeElement;
  if (!e || e === document.body) return null;
  const style = getComputedStyle(e), outline = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1;
  const box = e.getBoundingClientRect();
  const inside = box.bottom > 0 && box.right > 0 && box.top < innerHeight && box.left < innerWidth;
  return { walk: e.dataset.walk ?? null, seen: outline && inside, html: e.outerHTML.slice(0, 120) };
"""


@dataclass(frozen=True)
class Walk:
    """`controls`: how many there are; the other three name those with a defect, as the start of their HTML."""

    controls: int
    missed: list[str]
    unseen: list[str]
    stuck: list[str]


def walk(chromium: Any) -> Walk:
    """Press Tab from the top of the page until every control had its turn or twice as many keys were pressed."""
    from selenium.webdriver import ActionChains, Keys

    controls = chromium.execute_script(_CONTROLS)
    reached: set[str] = set()
    unseen, stuck, before = [], [], None
    for _ in range(2 * len(controls) + 10):
        ActionChains(chromium).send_keys(Keys.TAB).perform()
        focus = chromium.execute_script(_FOCUS)
        name = focus and focus["walk"]
        if name is not None and name == before:
            stuck.append(focus["html"])
        if focus is not None and not focus["seen"]:
            unseen.append(focus["html"])
        before = name
        if name is not None:
            reached.add(name)
        if len(reached) == len(controls):
            break
    missed = [html for i, html in enumerate(controls) if str(i) not in reached]
    return Walk(len(controls), missed, unseen, stuck)
