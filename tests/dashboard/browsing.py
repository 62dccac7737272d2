"""A real Chromium on a dashboard or on a file: visit a page, wait for what it shows, hear its complaints.

Two looks at the page that is open: what axe-core has against it, and a walk through it with the Tab key alone.
"""

import base64
import itertools
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from ddprof.dashboard.runs.open_run import OpenRun

PageOf, Serve, Sample = Callable[..., "Page"], Callable[..., str], Callable[[str], OpenRun]  # of fixtures
ENTER, ESCAPE, SHIFT, SPACE, TAB = "\ue007", "\ue00c", "\ue008", "\ue00d", "\ue004"
PAGE_UP, END, HOME, LEFT, RIGHT, DOWN = "\ue00e", "\ue010", "\ue011", "\ue012", "\ue014", "\ue015"
PATIENCE_S = 300.0
TILES = "return document.getElementById('timeline-root')?.dataset.tiles"
_READ = "return document.readyState === 'complete' && location.href !== 'about:blank'"
_SAID = "return document.getElementById('timeline-say').textContent"


def one_in(many: int, names: Sequence[str]) -> list[Any]:
    """Parameters of a test that takes seconds each: one in so many in the usual run, the others with the slow tests."""
    return [name if n % many == 0 else pytest.param(name, marks=pytest.mark.slow) for n, name in enumerate(names)]


# `pixels`: how many of a canvas's line, from this place to its right end, have one of these colours (about).
PIXELS = """
  const pixels = (canvas, [x, y], colours, slack) => {
    const wanted = colours.map((c) => c.match(/[0-9a-f]{2}/gi).map((h) => parseInt(h, 16)));
    const line = canvas.getContext("2d").getImageData(x, y, canvas.width - x, 1).data;
    const is = (want, i) => want.every((v, k) => Math.abs(line[i + k] - v) < slack);
    return line.filter((_, i) => i % 4 === 0 && wanted.some((want) => is(want, i))).length;
  };"""


class Page:
    """A page of the server or the file at `address`, as a reader sees and uses it."""

    def __init__(self, browser: Any, address: str) -> None:
        self.browser, self.address = browser, address

    def js(self, script: str, *given: Any) -> Any:
        return self.browser.execute_script(script, *given)

    def wait(self, script: str, *given: Any) -> Any:
        """The value of a script once it is true."""
        deadline, pause_s = time.monotonic() + PATIENCE_S, 0.02
        while time.monotonic() < deadline:
            if value := self.js(script, *given):
                return value
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.5, 0.5)  # on a busy machine asking costs what the answer needs
        raise AssertionError(f"never true: {script}")

    def css(self, selector: str) -> Any:
        return self.browser.find_element("css selector", selector)

    def every(self, selector: str) -> Any:
        return self.browser.find_elements("css selector", selector)

    def link(self, words: str) -> Any:
        return self.browser.find_element("link text", words)

    @property
    def hands(self) -> Any:
        """Mouse and keyboard: selenium's ActionChains."""
        from selenium.webdriver import ActionChains

        return ActionChains(self.browser)

    @property
    def said(self) -> str:
        """Text of the timeline below its bar."""
        return str(self.js(_SAID))

    @property
    def view(self) -> list[float]:
        """Begin and end of what the timeline shows, ns."""
        lo, hi = self.js("return [ddprof.timeline.lo, ddprof.timeline.hi]")
        return [lo, hi]

    @property
    def canvas(self) -> Any:
        return self.css(".tl-scroll canvas")

    def keys(self, *pressed: str) -> None:
        """Press keys while the timeline has the focus."""
        self.js("arguments[0].focus()", self.canvas)
        for key in pressed:
            self.canvas.send_keys(key)

    def visit(self, path: str) -> list[str]:
        """Open a page and wait until it is drawn; its complaints."""
        self._leave()
        self.browser.get(self.address + path)
        self._wait_until_drawn()
        return self.trouble()

    def open(self, anchor: str = "") -> "Page":
        """Open the file, at its timeline with all slices where that is asked for."""
        self._leave()
        self.browser.get(self.address + anchor)
        self.wait(_READ)  # an address with a # may be answered before the page has been read to its end
        if anchor.startswith("#timeline"):
            self.wait(TILES)
        return self

    def turn_to(self, title: str) -> list[str]:
        """Go to another page by its link in the navigation and wait until it is drawn; its complaints."""
        self.js("arguments[0].click()", self.css("#navigation").find_element("link text", title))
        self.wait(f"return document.querySelector('#navigation .current')?.textContent === {json.dumps(title)}")
        self._wait_until_drawn()
        return self.trouble()

    def menu(self) -> Any:
        """Menu "More" of the timeline, opened."""
        menu = self.css(".tl-menu")
        if not menu.is_displayed():
            self.css(".tl-more").click()
        return menu

    def press(self, words: str) -> Any:
        """Press what the timeline's menu has under these words, a button or a switch; returns it."""
        tools = self.menu().find_elements("css selector", "button, label:has(input)")
        pressed = next(tool for tool in tools if tool.text.startswith(words))
        (pressed.find_elements("css selector", "input") or [pressed])[0].click()
        return pressed

    def messages(self) -> list[dict[str, Any]]:
        """Messages of the network since the last call."""
        return [json.loads(entry["message"])["message"] for entry in self.browser.get_log("performance")]

    def trouble(self) -> list[str]:
        """Complaints on the console and requests to elsewhere since the last call."""
        sent = (m for m in self.messages() if m["method"] == "Network.requestWillBeSent")
        asked = [message["params"]["request"]["url"] for message in sent]
        logged = [e for e in self.browser.get_log("browser") if e["level"] in ("SEVERE", "WARNING")]
        complaints = [e["message"] for e in logged if "willReadFrequently" not in e["message"]]  # tests read pixels
        return complaints + [u for u in asked if not u.startswith((self.address, "data:", "blob:", "about:"))]

    @contextmanager
    def window(self, width: int, height: int = 900) -> Iterator[None]:
        """A window of some px meanwhile."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        try:
            yield
        finally:
            self.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})

    @contextmanager
    def on_paper(self) -> Iterator[None]:
        """The styles of paper meanwhile."""
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
        try:
            yield
        finally:
            self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})

    def printed(self, **how: bool) -> bytes:
        return base64.b64decode(self.browser.execute_cdp_cmd("Page.printToPDF", how)["data"])

    def _leave(self) -> None:
        self.browser.get("about:blank")  # the page before asks its own server every few seconds
        self.trouble()

    def _wait_until_drawn(self) -> None:
        drawn = "document.querySelector('#content h1, #content .notice') !== null"
        self.wait(f"return {drawn} && !document.querySelector('[data-dash-is-loading]')")
        if self.js("return document.getElementById('timeline-root') !== null"):
            self.wait(TILES)


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
