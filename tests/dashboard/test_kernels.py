"""The page Kernels: a table that holds the ledger's busy time, sorted, filtered, with commands for Nsight Compute."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ddprof.dashboard.exhibits.kernels import exhibits
from ddprof.dashboard.exhibits.parts.exhibit import Exhibit, Named, Nested, Sheet
from ddprof.dashboard.exhibits.parts.short_name import MOST_CHARS, short_name
from ddprof.dashboard.onefile.document import render
from ddprof.dashboard.pages.catalogue import page_at
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.dashboard.runs.view import View
from ddprof.report.model import Report
from tests.dashboard.browsing import trouble, visit, wait_for

BUSY = ("compute", "comm_wait", "comm_transfer", "pipeline_bubble", "memcpy")


@pytest.fixture
def on_cuda(straggler: OpenRun) -> OpenRun:
    """The straggler run as one on devices that Nsight Compute knows."""
    report = straggler.report
    return replace(straggler, report=replace(report, run=replace(report.run, device="cuda")))


def exhibit(view: View, name: str) -> Exhibit:
    return next(e for e in exhibits(view) if e.id == name)


@pytest.mark.parametrize("name", ["kernels", "operators"])
def test_the_csv_sums_to_the_ledger(view: View, name: str) -> None:
    rows = list(csv.DictReader(io.StringIO(exhibit(view, name).sheet.csv())))
    busy_ms = sum(float(row["busy (ms/step)"]) for row in rows)
    assert busy_ms == pytest.approx(sum(view.opened.report.ledger.job[c] for c in BUSY) / 1e3, rel=1e-6)


def test_what_was_not_recorded_names_the_option_that_records_it(view: View) -> None:
    assert "with_stack=True" in exhibit(view, "modules").reading
    assert "with_stack=True" in exhibit(view, "lines").reading


def test_a_filter_of_ranks_changes_the_numbers_and_leaves_no_spread(view: View) -> None:
    one = exhibit(replace(view, query={"ranks": "0"}), "kernels")
    assert "slowest rank (ms)" in exhibit(view, "kernels").sheet.columns
    assert "slowest rank (ms)" not in one.sheet.columns
    assert one.follows == ("ranks",)


def test_collectives_have_no_command_and_other_vendors_devices_none_at_all(on_cuda: OpenRun) -> None:
    sheet = exhibit(View(on_cuda, {}, (on_cuda,)), "kernels").sheet
    kinds = {(row[2], bool(sheet.command(n))) for n, row in enumerate(sheet.rows)}
    assert ("compute", True) in kinds and ("communication", True) not in kinds
    other = replace(on_cuda, report=replace(on_cuda.report, run=replace(on_cuda.report.run, device="rocm")))
    assert exhibit(View(other, {}, (other,)), "kernels").sheet.commands == ()


def test_a_saved_report_says_that_it_holds_no_kernels(straggler_report: Report) -> None:
    view = View(OpenRun(straggler_report), {})
    assert "holds no events" in exhibit(view, "kernels").reading
    assert page_at("/kernels").subject.is_empty(view)


def test_rows_that_are_not_shown_state_their_share() -> None:
    sheet = Sheet(("kernel", "% of the step"), tuple((Named(f"k{n}"), 10.0 - n) for n in range(10)), True, 1)
    assert sheet.rest(10) == ""
    assert sheet.rest(8) == "2 more rows, together 3 % of the step"
    assert sheet.rest(9) == "1 more row, together 1 % of the step"


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("void at::native::f<4, at::native::Add<c10::Half> >(int, long)", "f<4, Add<Half> >"),
        ("void (anonymous namespace)::norm<float>(int, float (*)(int))", "norm<float>"),
        ("ncclDevKernel_AllReduce_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "ncclDevKernel_AllReduce_RING_LL"),
        ("Memcpy HtoD (Pinned -> Device)", "Memcpy HtoD (Pinned -> Device)"),
        ("aten::mm", "aten::mm"),
    ],
)  # fmt: skip
def test_names_of_kernels_lose_what_tells_nothing(name: str, short: str) -> None:
    assert short_name(name) == short


def test_long_names_keep_the_end_that_tells_them_apart() -> None:
    assert len(short_name("k" * 200)) == MOST_CHARS
    assert Nested("Gpt_0 > " * 20 + "Linear_7").short.endswith("> Linear_7")


def test_the_file_has_the_table_and_redaction_hides_its_names(on_cuda: OpenRun) -> None:
    page = render(on_cuda)
    assert 'id="exhibit-kernels"' in page and 'class="tool"' in page and "data-command=" in page
    hidden = render(on_cuda, key=b"k")
    assert 'id="exhibit-kernels"' in hidden and "data-command=" not in hidden


@pytest.mark.browser
def test_the_table_is_sorted_filtered_and_gives_a_command(
    chromium: Any, serve: Callable[..., str], on_cuda: OpenRun
) -> None:
    address = serve([on_cuda])
    assert visit(chromium, address, "/kernels") == []
    table = "document.querySelector('#exhibit-kernels .sheet table')"
    wait_for(chromium, f"return {table} !== null")
    heads = chromium.execute_script(f"return [...{table}.tHead.rows[0].cells].map((c) => c.textContent)")
    column = heads.index("calls/step")
    rows = f"[...{table}.tBodies[0].rows]"
    values = f"return {rows}.map((r) => Number(r.cells[{column}].textContent.replaceAll(',', '')))"
    press = f"{table}.tHead.rows[0].cells[{column}].querySelector('button').click()"
    chromium.execute_script(press)
    assert (found := chromium.execute_script(values)) == sorted(found, reverse=True)
    chromium.execute_script(press)
    assert (found := chromium.execute_script(values)) == sorted(found)
    field = chromium.find_element("css selector", "#exhibit-kernels .tool-bar input")
    field.send_keys("communication")
    kinds = f"return {rows}.filter((r) => !r.hidden).map((r) => r.cells[2].textContent)"
    wait_for(chromium, f"return {rows}.some((r) => r.hidden)")
    assert set(chromium.execute_script(kinds)) == {"communication"}
    said = chromium.find_element("css selector", "#exhibit-kernels .tool-bar output").text
    assert f" of {len(found)} rows" in said
    chromium.execute_script("document.querySelector('#exhibit-kernels td button').click()")
    assert chromium.find_element("css selector", "#exhibit-kernels .tool-command pre").text.startswith("ncu ")
    assert trouble(chromium, address) == []
