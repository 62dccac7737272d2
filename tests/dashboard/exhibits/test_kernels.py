"""The page Kernels: a table that holds the ledger's busy time, sorted, filtered, with commands for Nsight Compute."""

import csv
import io
import itertools
import re
import shlex
from dataclasses import replace

import pytest

from ddprof.dashboard.exhibits.kernels import WARM_UP_STEPS, exhibits, ncu_command
from ddprof.dashboard.exhibits.parts.exhibit import Exhibit
from ddprof.dashboard.figures.charts import Flame
from ddprof.dashboard.onefile.document import render
from ddprof.dashboard.pages.catalogue import page_at
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.dashboard.runs.view import View
from ddprof.report.model import Report
from tests.dashboard.browsing import Page, PageOf
from tests.dashboard.made import alone, with_run

BUSY = ("compute", "comm_wait", "comm_transfer", "pipeline_bubble", "memcpy")
KERNEL = "void at::native::elementwise_kernel<128, 4, f(int)::{lambda(int)#1}>(int, f(int)::{lambda(int)#1})"


@pytest.fixture
def on_cuda(straggler: OpenRun) -> OpenRun:
    """The straggler run as one on devices that Nsight Compute knows."""
    return with_run(straggler, device="cuda")


def exhibit(view: View, name: str) -> Exhibit:
    return next(e for e in exhibits(view) if e.id == name)


@pytest.mark.parametrize("name", ["kernels", "operators"])
def test_the_csv_sums_to_the_ledger(view: View, name: str) -> None:
    busy_ms = sum(float(row["busy (ms/step)"]) for row in csv.DictReader(io.StringIO(exhibit(view, name).sheet.csv())))
    assert busy_ms == pytest.approx(sum(view.opened.report.ledger.job[c] for c in BUSY) / 1e3, rel=1e-6)


def test_the_flame_graph_is_filled_and_sums_to_the_table(view: View) -> None:
    flame = exhibit(view, "flame")
    assert isinstance(flame.chart, Flame)
    whole, *parts = flame.chart.frames
    busy_ms = sum(row[4] for row in exhibit(view, "kernels").sheet.rows)
    assert whole.busy_us == pytest.approx(busy_ms * 1e3, abs=1e-3) and whole.depth == 0
    assert sum(f.busy_us for f in parts if f.depth == 1) == pytest.approx(whole.busy_us, abs=1e-3)
    assert "Modules: not recorded" in flame.reading and flame.follows == ("ranks",)
    listed = {str(row[0]) for row in exhibit(view, "kernels").sheet.rows}
    kernels = [f for f in parts if f.depth == 2 and f.name]
    assert kernels and {f.name for f in kernels} <= listed and {f.level for f in kernels} == {"kernel"}


@pytest.mark.parametrize("where", ["dashboard", "file"])
def test_a_click_on_the_flame_filters_the_table(request, chromium, view: View, where: str) -> None:
    page: Page = request.getfixturevalue("page" if where == "dashboard" else "file_page")
    assert page.visit("/kernels") == [] if where == "dashboard" else page.open("#kernels")
    bars = "[...document.querySelectorAll('#exhibit-flame .bars .point path')]"
    # Charts of a file are drawn once they are seen, and those above may still push this one down.
    page.wait(f"document.querySelector('#exhibit-flame').scrollIntoView(); return {bars}.length > 3")
    page.js("document.querySelector('#exhibit-flame').scrollIntoView()")
    chart = exhibit(view, "flame").chart
    assert isinstance(chart, Flame)
    place = next(i for i, f in enumerate(chart.frames) if f.depth == 2 and f.name)
    page.hands.move_to_element(page.js(f"return {bars}[{place}]")).click().perform()
    words = "document.querySelector('#exhibit-kernels input[type=search]').value"
    assert page.wait(f"return {words}") == chart.frames[place].name
    rows = "[...document.querySelectorAll('#exhibit-kernels tbody tr')]"
    shown, every = page.js(f"return [{rows}.filter((r) => !r.hidden).length, {rows}.length]")
    assert 0 < shown < every and page.trouble() == []


def test_what_is_not_known_is_said_and_a_filter_of_ranks_leaves_no_spread(view: View, straggler_report: Report) -> None:
    assert all("with_stack=True" in exhibit(view, name).reading for name in ("modules", "lines"))
    one = exhibit(replace(view, query={"ranks": "0"}), "kernels")
    assert "slowest rank (ms)" in exhibit(view, "kernels").sheet.columns
    assert "slowest rank (ms)" not in one.sheet.columns and one.follows == ("ranks",)
    view = View(OpenRun(straggler_report), {})
    assert "holds no events" in exhibit(view, "kernels").reading and page_at("/kernels").is_empty(view)


def test_collectives_and_devices_of_other_vendors_and_redacted_files_have_no_command(on_cuda: OpenRun) -> None:
    sheet = exhibit(alone(on_cuda), "kernels").sheet
    kinds = {(row[2], bool(sheet.command(n))) for n, row in enumerate(sheet.rows)}
    assert ("compute", True) in kinds and ("communication", True) not in kinds
    assert exhibit(alone(with_run(on_cuda, device="rocm")), "kernels").sheet.commands == ()
    page, hidden = render(on_cuda), render(on_cuda, key=b"k")
    assert 'id="exhibit-kernels"' in page and 'class="tool"' in page and "data-command=" in page
    assert 'id="exhibit-kernels"' in hidden and "data-command=" not in hidden


def test_the_table_is_sorted_filtered_and_gives_a_command(page_of: PageOf, on_cuda: OpenRun) -> None:
    page = page_of(on_cuda)
    assert page.visit("/kernels") == []
    table = "document.querySelector('#exhibit-kernels .sheet table')"
    page.wait(f"return {table} !== null")
    column = page.js(f"return [...{table}.tHead.rows[0].cells].map((c) => c.textContent)").index("calls/step")
    rows = f"[...{table}.tBodies[0].rows]"
    values = f"return {rows}.map((r) => Number(r.cells[{column}].textContent.replaceAll(',', '')))"
    press = f"{table}.tHead.rows[0].cells[{column}].querySelector('button').click()"
    falling, rising = page.js(f"{press}; {values}"), page.js(f"{press}; {values}")
    assert falling == sorted(falling, reverse=True) and rising == sorted(rising)
    page.css("#exhibit-kernels .tool-bar input").send_keys("communication")
    kinds = f"return {rows}.filter((r) => !r.hidden).map((r) => r.cells[2].textContent)"
    page.wait(f"return {rows}.some((r) => r.hidden)")
    assert set(page.js(kinds)) == {"communication"}
    assert f" of {len(rising)} rows" in page.css("#exhibit-kernels .tool-bar output").text
    page.js("document.querySelector('#exhibit-kernels td button').click()")
    assert page.css("#exhibit-kernels .tool-command pre").text.startswith("ncu ") and page.trouble() == []


def test_one_step_of_the_kernel_is_profiled_and_a_rare_one_once() -> None:
    words = shlex.split(ncu_command(KERNEL, 24.0, "torchrun train.py"))
    assert words[0] == "ncu" and words[-2:] == ["torchrun", "train.py"]
    option = dict(itertools.pairwise(words))
    assert option["--launch-skip"] == str(24 * WARM_UP_STEPS) and option["--launch-count"] == "24"
    kind, _, expression = option["--kernel-name"].partition(":")
    assert kind == "regex" and re.search(expression, KERNEL)
    assert not re.search(expression, KERNEL.replace("128", "256")) and not re.search(expression, f"{KERNEL} x")
    assert "--launch-count 1 " in ncu_command("k", 0.2, "python train.py")
