"""Each shipped sample: the Overview names the culprit, two clicks lead to the event ("Show in timeline", the span)."""

import pytest

from ddprof.findings import Evidence
from ddprof.units import format_ranks
from tests.dashboard.browsing import TILES, Page, PageOf, Sample, one_in
from tests.dashboard.made import TRUTHS

FAULTY = [name for name, truth in TRUTHS.items() if truth["findings"]]
NO_EVENT = {"memory.headroom", "input.unsharded"}  # a level and a setting: nothing of the timeline is their event

# A place of the canvas, not of a row that its end cuts, where a slice of this rank lies in the middle of the span.
_PLACE = """
  const [rank, lo, hi] = arguments, t = ddprof.timeline, x = t.painter.x((lo + hi) / 2 * 1e3);
  const rows = t.visibleRows().filter((r) => r.rank === rank && r.lane !== undefined);
  const middle = (r) => r.y + r.height / 2;
  const row = rows.reverse().find((r) => middle(r) < t.height && t.at(x, middle(r)).data);
  return row ? [x, row.y + row.height / 2] : null;"""


@pytest.mark.parametrize("name", one_in(3, FAULTY))
def test_the_overview_names_the_culprit_and_two_clicks_show_it(page_of: PageOf, sample: Sample, name: str) -> None:
    opened = sample(name)
    page = page_of(opened)
    for fault in TRUTHS[name]["findings"]:
        named, ranked = {fault["id"], *fault["or"]}, enumerate(opened.report.ranked_findings())
        number, finding = next((n, f) for n, f in ranked if f.id in named and f.ranks == tuple(fault["ranks"]))
        page.visit("/")
        card = page.every("article.card")[number]
        assert finding.summary in card.text
        ranks = format_ranks(fault["ranks"]) if fault["ranks"] else ""
        assert ranks in page.css("h1").text and ranks in card.text
        links = card.find_elements("link text", "Show in timeline")
        if finding.id in NO_EVENT:
            assert links == []
            continue
        links[0].click()
        _click_the_span(page, next(e for e in finding.evidence if e.start_us is not None))
        assert page.trouble() == []


def _click_the_span(page: Page, evidence: Evidence) -> None:
    page.wait(TILES)
    focus = page.js("return ddprof.timeline.focus")
    assert (focus["rank"], focus["lo_us"], focus["hi_us"]) == (evidence.rank, evidence.start_us, evidence.end_us)
    assert evidence.text in page.said
    window = [evidence.rank, evidence.start_us, evidence.end_us]
    x, y = page.wait(_PLACE, *window)
    size = page.canvas.size  # Selenium counts from the middle of the element
    x, y = round(x - size["width"] / 2), round(y - size["height"] / 2)
    page.hands.move_to_element_with_offset(page.canvas, x, y).click().perform()
    page.wait("return document.querySelector('.tl-panel h3')?.textContent")
    assert f"rank {evidence.rank}" in page.css(".tl-panel").text
    details = page.js("return ddprof.timeline.pinned")
    assert details["rank"] == evidence.rank
    middle = (window[1] + window[2]) / 2
    slack = (window[2] - window[1]) / 50  # two pixels of what is shown
    assert details["start_us"] - slack <= middle <= details["start_us"] + details["dur_us"] + slack
