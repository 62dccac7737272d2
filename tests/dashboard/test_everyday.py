"""Everyday questions, answered from the Overview in at most three clicks, against the run's own tables or its truth.

Of each shipped sample it names the culprit, and two clicks lead to the event ("Show in timeline", the span)."""

import gzip
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.oracle.kinds import scenario
from benchmarks.oracle.simulate import simulate
from benchmarks.oracle.write import write
from ddprof.analyzers.kernel_table.model import merged
from ddprof.causes import CAUSE_CODE
from ddprof.dashboard.exhibits.catalogue import SUBJECTS
from ddprof.dashboard.exhibits.parts.exhibit import Named
from ddprof.dashboard.exhibits.parts.numbers import causes_by_step_us, step_name
from ddprof.dashboard.pages.catalogue import page_at
from ddprof.dashboard.runs.open_run import OpenRun, load
from ddprof.dashboard.runs.view import View
from ddprof.findings import Evidence
from ddprof.report import phrases
from ddprof.report.comparison.compare import compare
from ddprof.report.comparison.text import comparison_headline
from ddprof.units import format_bytes, format_ranks, format_us
from tests.dashboard.browsing import TILES, Page, PageOf, Sample, Serve, one_in
from tests.dashboard.made import SEED, TRUTHS

MOST_CLICKS = 3
PRODUCTS = 7  # of a module
TODAY, YESTERDAY, STARVED, FULL = "straggler.compute", "yesterday", "starved_loader", "full_memory"
PEERS = ("it is mostly the peers, not the network", "The fastest message reaches")
LATE = ("Rank 2 enters a collective", "mostly compute", "Finding 1 (straggler.compute) names it")
HOST = ("{host} (ranks 2, 3)", "names all of its ranks: look at the host")
QUESTIONS = {
    "who is late and why": ("Who comes late", "body", LATE),
    "which host is bad": ("More on ranks and steps", "body", HOST),
    "whether the network is slow": ("communication", ".legend", PEERS),
}

FAULTY = [name for name, truth in TRUTHS.items() if truth["findings"]]
NO_EVENT = {"memory.headroom", "input.unsharded"}  # a level and a setting: nothing of the timeline is their event

# A place of the canvas, not of a row that its end cuts, where a slice of this rank lies in the middle of the span.
_PLACE = """
  const [rank, lo, hi] = arguments, t = ddprof.timeline, x = t.painter.x((lo + hi) / 2 * 1e3);
  const rows = t.visibleRows().filter((r) => r.rank === rank && r.lane !== undefined);
  const middle = (r) => r.y + r.height / 2;
  const row = rows.reverse().find((r) => middle(r) < t.height && t.at(x, middle(r)).data);
  return row ? [x, row.y + row.height / 2] : null;"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, sample: Sample) -> dict[str, OpenRun]:
    """Yesterday's run of the job that a slow host holds up today (with modules), and one run for each other trouble."""
    today = scenario(SEED, TODAY)
    today = replace(today, format=replace(today.format, naming="tb"))
    folder = tmp_path_factory.mktemp("everyday")
    write(simulate(today), folder / TODAY)
    write(simulate(replace(today, faults=())), folder / YESTERDAY)
    _with_modules(folder / TODAY / "traces")
    served = {name: load([str(folder / name / "traces")], workers=1)[0] for name in (TODAY, YESTERDAY)}
    # Yesterday's is the last: Compare takes the next, which is the first.
    served = {TODAY: served[TODAY], STARVED: sample(STARVED), FULL: sample(FULL), YESTERDAY: served[YESTERDAY]}
    for run in served.values():  # what pages ask of a run is worked out once: here, and not in the test that is first
        view = View(run, {}, tuple(served.values()))
        assert page_at("/").content(view) and any(subject.is_empty(view) for subject in SUBJECTS)
    return served


def _with_modules(traces: Path) -> None:
    """Modules around every seven products of the forward pass, long enough to be no part of the one around."""
    for file in traces.iterdir():
        document = json.loads(gzip.decompress(file.read_bytes()))
        events = document["traceEvents"]
        products = sorted((e for e in events if e.get("name") == "aten::linear"), key=lambda e: e["ts"])
        steps = sum(e.get("name", "").startswith("ProfilerStep#") for e in events if e.get("cat") == "user_annotation")
        blocks = len(products) // steps // PRODUCTS
        for place in range(blocks * steps):
            first = place // blocks * (len(products) // steps) + place % blocks * PRODUCTS
            begin, end = products[first], products[first + PRODUCTS - 1]
            module = {"ph": "X", "cat": "python_function", "name": f"nn.Module: Block_{place % blocks}"}
            where = {"pid": begin["pid"], "tid": begin["tid"], "ts": begin["ts"]}
            events.append({**module, **where, "dur": end["ts"] + end["dur"] - begin["ts"]})
        file.write_bytes(gzip.compress(json.dumps(document).encode(), mtime=0))


@pytest.fixture(scope="module")
def address(serve: Serve, runs: dict[str, OpenRun]) -> str:
    return serve(list(runs.values()))


@dataclass
class Reader:
    """Somebody who looks at the Overview of one run, and clicks."""

    page: Page
    view: View
    clicks: int = 0

    def click(self, words: str, within: str = "body") -> None:
        """A link, button or heading of folded text by its words: the first that begins with them."""
        script = """const [words, within] = arguments;
            return [...document.querySelectorAll(`${within} :is(a, button, summary)`)]
              .find((e) => e.textContent.trim().startsWith(words) && e.getClientRects().length)"""
        self.page.wait(script, words, within).click()
        self.clicks += 1
        assert self.clicks <= MOST_CLICKS

    def reads(self, *words: str, within: str = "#content") -> None:
        """The page comes to say all of this."""
        for word in words:
            told = "return (document.querySelector(arguments[0])?.innerText ?? '').includes(arguments[1])"
            self.page.wait(told, within, word)


@pytest.fixture
def reader(page: Page, runs: dict[str, OpenRun]) -> Iterator[Callable[[str], Reader]]:
    """`reader(kind)`: the Overview of that run is open; nothing may have complained by the end."""

    def opened(kind: str) -> Reader:
        number = list(runs).index(kind)
        view = View(runs[kind], {"run": str(number)}, tuple(runs.values()))
        assert page.visit(f"/?run={view.ids[number]}") == []
        return Reader(page, view)

    yield opened
    assert page.trouble() == []


Opens = Callable[[str], Reader]


@pytest.mark.parametrize(("click", "within", "said"), QUESTIONS.values(), ids=QUESTIONS)
def test_of_todays_run(reader: Opens, click: str, within: str, said: tuple[str, ...]) -> None:
    one = reader(TODAY)
    report = one.view.opened.report
    one.reads(phrases.headline(report), "ranks 2, 3")
    one.click(click, within)
    one.reads(*(words.format(host=report.run.hosts[2]) for words in said))


def test_what_the_late_rank_does_meanwhile_and_where_the_longer_steps_are(reader: Opens) -> None:
    one = reader(TODAY)
    one.click("Show in timeline")
    one.page.wait("return ddprof.timeline && ddprof.timeline.tile")
    left, right = (ns / 1e3 for ns in one.page.view)
    finding = one.view.opened.report.ranked_findings()[0]
    spans = [(e.start_us, e.end_us) for e in finding.evidence if e.start_us is not None and e.end_us is not None]
    assert any(left <= lo and hi <= right and right - left < 5 * max(hi - lo, 4) for lo, hi in spans)
    one = reader(TODAY)
    steps = one.view.opened.report.steps.per_step_us
    longest = max(range(len(steps)), key=lambda step: steps[step])
    one.click(f"Longest: {step_name(one.view.opened.job, longest)}, in the timeline")
    one.page.wait("return ddprof.timeline && ddprof.timeline.tile")
    lo, hi = one.page.view
    ranks = one.view.opened.timeline.steps
    begin, end = min(of.start_ns[longest] for of in ranks), max(of.end_ns[longest] for of in ranks)
    assert lo <= begin and end <= hi < end + (end - begin)


def test_which_layer_and_which_kernel_cost_the_most(reader: Opens) -> None:
    one = reader(TODAY)
    named = [row for row in merged(one.view.opened.kernels, ("module",)) if "Block_" in row.key[0]]
    slow = max(named, key=lambda row: row.busy_us)
    one.click("Kernels", "#navigation")
    one.reads(slow.key[0], within="#exhibit-modules")
    told = one.page.wait("return document.querySelector('#exhibit-modules tbody')?.innerText")
    assert len(named) > 1 and told.index(slow.key[0]) == min(told.index(row.key[0]) for row in named)
    one = reader(TODAY)
    most = max(merged(one.view.opened.kernels, ("kernel",)), key=lambda row: row.busy_us)
    one.click("compute", ".legend")
    shown = one.page.wait("return document.querySelector('#exhibit-kernels tbody tr td')?.textContent")
    assert shown == Named(most.key[0]).short


def test_what_changed_since_yesterday(reader: Opens, runs: dict[str, OpenRun]) -> None:
    one = reader(YESTERDAY)
    one.click("Compare", "#navigation")
    change = compare(runs[YESTERDAY].report, runs[TODAY].report)
    assert change.step.outcome == "slower" and change.new
    one.reads(phrases.clean(comparison_headline(change)), "new", change.new[0].id)


def test_what_else_was_looked_for_and_not_found(reader: Opens) -> None:
    one = reader(YESTERDAY)
    checked = one.view.opened.report.checked
    one.click(f"{len(checked)} causes")
    one.reads(*checked)


def test_how_much_memory_is_left(reader: Opens) -> None:
    one = reader(FULL)
    worst = max((of.memory for of in one.view.opened.job.ranks), key=lambda memory: memory["peak_allocated_bytes"])
    held = max(worst["peak_allocated_bytes"], worst.get("peak_reserved_bytes") or 0)
    one.click("Memory", "#navigation")
    one.reads(f"{format_bytes(worst['total_bytes'] - held)} of the device is left")


def test_why_the_loader_waits_and_which_setting_to_change_and_what_it_wins(reader: Opens) -> None:
    one = reader(STARVED)
    waits = causes_by_step_us(one.view.opened.job)[..., CAUSE_CODE["dataloader"]]
    one.click("More on input and host")
    one.reads(f"{format_us(float(np.mean(waits)))} per step", "workers make the batches")
    one = reader(STARVED)
    report = one.view.opened.report
    one.click("What if it were fixed")
    after_us = report.predicted_step_us(report.ranked_findings()[0])
    one.reads(f"{format_us(report.steps.wall_us)} → {format_us(after_us)} per step", "ddprof whatif", "loader=ready")


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
    assert (details := page.js("return ddprof.timeline.pinned"))["rank"] == evidence.rank
    middle, slack = sum(window[1:]) / 2, (window[2] - window[1]) / 50  # two pixels of what is shown
    assert details["start_us"] - slack <= middle <= details["start_us"] + details["dur_us"] + slack
