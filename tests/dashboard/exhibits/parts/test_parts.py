"""Parts of exhibits: tables as CSV, short names, the flame graph, numbers that agree with the ledger."""

import csv
import io
import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace as with_fields
from selenium.webdriver.support.ui import Select

from ddprof.analyzers.engine import Options, load_runs
from ddprof.analyzers.job.model import GROUPS, JobFacts
from ddprof.analyzers.kernel_table.model import Merged, merged
from ddprof.analyzers.kernel_table.of_run import kernels_of
from ddprof.dashboard.exhibits.data import exhibits as data_exhibits
from ddprof.dashboard.exhibits.host import exhibits as host_exhibits
from ddprof.dashboard.exhibits.kernels import BY, LEAST_SHARE, frames
from ddprof.dashboard.exhibits.parts.arrangement import arrangement
from ddprof.dashboard.exhibits.parts.exhibit import MOST_CHARS, Named, Nested, Sheet, sheet
from ddprof.dashboard.exhibits.parts.numbers import group_times, lateness_us, readable_times, step_name
from ddprof.dashboard.exhibits.parts.try_it import short_names
from ddprof.dashboard.figures.charts import FlameFrame
from ddprof.dashboard.runs.open_run import OpenRun, load
from ddprof.report.model import HealthItem
from tests.dashboard.browsing import Page, PageOf, Sample, one_in, serious
from tests.dashboard.made import alone, with_job
from tests.dashboard.tuned import ANSWER

SHORTENED = [
    ("void at::native::f<4, at::native::Add<c10::Half> >(int, long)", "f<4, Add<Half> >"),
    ("void (anonymous namespace)::norm<float>(int, float (*)(int))", "norm<float>"),
    ("ncclDevKernel_AllReduce_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "ncclDevKernel_AllReduce_RING_LL"),
    *((name, name) for name in ("Memcpy HtoD (Pinned -> Device)", "aten::mm")),
]  # fmt: skip
NS = 1e-3  # us
RANKS = "return [...new Set(ddprof.timeline.rows.map((r) => r.rank).filter((r) => r !== undefined))]"
HEADS = "return ddprof.timeline.rows.filter((r) => r.isHost).map((r) => r.label)"
ROWS = [
    Merged((module, operator, kernel, kind), 2.0, busy_us, busy_us, busy_us / 1000, None, 0.0, 0.0, 0, 1, *[None] * 3)
    for module, operator, kernel, busy_us, kind in (
        ("Net > Layer_0", "aten::mm", "gemm", 400.0, "compute"),
        ("Net > Layer_0", "aten::add", "vector", 50.0, "compute"),
        ("Net > Layer_1", "aten::mm", "gemm", 300.0, "compute"),
        ("Net", "aten::sum", "reduce", 20.0, "compute"),
        ("", "", "all_reduce", 230.0, "communication"),
        ("Net > Layer_1", "aten::t", "tiny", 0.5, "compute"),
        ("Net > Layer_1", "aten::u", "tinier", 0.25, "compute"),
    )
]


def test_csv_is_quoted_rows_left_out_state_their_share_and_long_names_keep_the_end() -> None:
    text = sheet(("name (x)", "value"), [('=HYPERLINK("x")', 1.5), ("a,b\nc", None)]).csv()
    assert [*csv.reader(io.StringIO(text))] == [["name (x)", "value"], ['\'=HYPERLINK("x")', "1.5"], ["a,b?c", ""]]
    ranked = Sheet(("kernel", "% of the step"), tuple((Named(f"k{n}"), 10.0 - n) for n in range(10)), True, 1)
    assert ranked.rest(10) == "" and ranked.rest(8) == "2 more rows, together 3 % of the step"
    assert ranked.rest(9) == "1 more row, together 1 % of the step" and len(Named("k" * 200).short) == MOST_CHARS
    assert Nested("Gpt_0 > " * 20 + "Linear_7").short.endswith("> Linear_7")
    names = [f"num_workers=2, prefetch_factor={n} at a.py:{n}" for n in range(2)]  # alike, and told apart
    assert short_names([with_fields(ANSWER.tried[0], settings=(name,)) for name in names]) == names


@pytest.mark.parametrize(("name", "short"), SHORTENED)
def test_names_of_kernels_lose_what_tells_nothing(name: str, short: str) -> None:
    assert Named(name).short == short


def check(tree: list[FlameFrame], rows: list[Merged]) -> None:
    """Every frame is filled by those below it, and none sticks out."""
    assert tree[0].busy_us == pytest.approx(sum(r.busy_us for r in rows), abs=NS)
    for i, parent in enumerate(tree):
        inside = itertools.takewhile(lambda f, depth=parent.depth: f.depth > depth, tree[i + 1 :])
        below = [f for f in inside if f.depth == parent.depth + 1]
        if not below:
            continue
        for field in ("busy_us", "total_us", "calls", "step_share"):
            summed = sum(getattr(f, field) for f in below)
            assert summed == pytest.approx(getattr(parent, field), abs=NS, rel=1e-9), (parent, field)
        assert below[0].start_us == pytest.approx(parent.start_us, abs=NS)
        for left, right in itertools.pairwise(below):
            assert right.start_us == pytest.approx(left.start_us + left.busy_us, abs=NS)


def test_modules_hold_operators_these_hold_kernels_and_what_is_too_narrow_is_one_frame() -> None:
    tree = frames(ROWS)
    check(tree, ROWS)
    told = [(f.depth, f.level, f.words, f.busy_us) for f in tree]
    assert told[:2] == [(0, "all", "all kernels", 1000.75), (1, "module", "Net", 770.75)]
    assert told[2:4] == [(2, "module", "Layer_0", 450.0), (3, "operator", "aten::mm", 400.0)]
    assert (1, "module", "no module", 230.0) in told and (2, "operator", "no operator", 230.0) in told
    assert next(f.name for f in tree if f.words == "Layer_1") == "Net > Layer_1"
    assert next(f.kind for f in tree if f.words == "no module") == "communication"
    assert [(f.words, f.busy_us, f.name) for f in tree if f.level == "more"] == [("2 more", 0.75, "")]
    assert all(f.busy_us >= LEAST_SHARE * 1000.75 for f in tree if f.level != "more")


def test_a_sample_sums_to_its_table_and_levels_that_no_row_has_are_left_out(repo_root: Path) -> None:
    bare = [replace(r, key=("", "", *r.key[2:])) for r in ROWS]
    assert {f.level for f in frames(bare)} == {"all", "kernel", "more"} and frames([]) == []
    check(frames(bare), bare)
    (run,) = load_runs([str(repo_root / "sample_traces" / "late_loader" / "traces")], Options(cache=False))
    rows = merged(kernels_of(run), BY)
    tree = frames(rows)
    check(tree, rows)
    by_kernel = {r.key[0]: r.busy_us for r in merged(kernels_of(run), ("kernel",))}
    assert tree[0].busy_us == pytest.approx(sum(by_kernel.values()), abs=NS)
    for name in {f.name for f in tree if f.level == "kernel"}:
        assert sum(f.busy_us for f in tree if f.level == "kernel" and f.name == name) <= by_kernel[name] + NS


def _without_last_step(job: JobFacts) -> JobFacts:
    """The job as if the mark of its last step were missing: its communication lies outside every step."""
    return replace(job, ranks=tuple(replace(f, steps=f.steps.take(np.arange(len(f.steps) - 1))) for f in job.ranks))


def test_groups_hold_the_traffic_of_the_steps(straggler: OpenRun) -> None:
    groups, traffic = group_times(straggler.job), straggler.measures.comm.traffic
    ranks = len(straggler.job.ranks)  # a rank is in several groups, and each group has the mean over its members
    assert sum(g.transfer_us * g.size for g in groups) / ranks == pytest.approx(sum(t.transfer_us for t in traffic))
    assert sum(g.calls * g.size for g in groups) / ranks == pytest.approx(sum(t.count for t in traffic))


def test_communication_outside_the_steps_is_in_no_group_and_makes_nobody_late(straggler: OpenRun) -> None:
    job, less = straggler.job, _without_last_step(straggler.job)
    whole, cut = group_times(job)[0], group_times(less)[0]
    assert cut.calls == pytest.approx(whole.calls)  # per step, and there is one step less
    assert cut.transfer_us == pytest.approx(whole.transfer_us, rel=0.1)
    np.testing.assert_allclose(lateness_us(less), lateness_us(job)[:, :-1], equal_nan=True)
    assert step_name(less, 0) == f"step 0 (marked {job.ranks[0].steps['index'][0]})"


def test_of_two_ranks_each_is_held_against_the_other(sample: Sample) -> None:
    job = sample("full_memory").job
    members, late_us = job.members, lateness_us(job)
    start_ns = members["start_ns"] - np.array([job.clock.offset_ns(position) for position in (0, 1)])[members["rank"]]
    start_us = (start_ns - start_ns.min()) / 1e3  # unix nanoseconds do not fit a float
    apart_us = np.zeros(len(job.instances))
    np.add.at(apart_us, members["instance"], np.where(members["rank"] == 0, start_us, -start_us))
    assert late_us[0].mean() == pytest.approx(apart_us.mean(), rel=1e-6)  # every step has as many collectives
    np.testing.assert_allclose(late_us[0], -late_us[1])


def test_short_times_are_drawn_in_microseconds() -> None:
    shown, unit, critical = readable_times(np.array([[0.0647, np.nan], [-0.002, 0.0]]), 50.0)
    assert unit == "µs" and shown[0, 0] == pytest.approx(64.7)
    assert critical == 5000.0  # us: a tenth of the step, in the unit of the picture
    assert readable_times(np.array([[0.0, 12.5]]), 50.0)[1:] == ("ms", 5.0)
    assert readable_times(np.array([[np.nan]]), 50.0)[1] == "µs"


def test_a_defect_of_many_ranks_is_one_line_and_a_table_of_zeros_is_not_shown(straggler: OpenRun) -> None:
    items = [HealthItem("the trace ends early", "its last step is left out", "warning", rank) for rank in range(4)]
    report = replace(straggler.report, health=(*items, HealthItem("no settings", "none are advised", "info")))
    health = next(e for e in data_exhibits(alone(OpenRun(report, straggler.loaded))) if e.id == "health")
    told = [("warning", "ranks 0-3", "the trace ends early"), ("info", "the run", "no settings")]
    assert [row[:3] for row in health.sheet.rows] == told and "conclusions: 1; remarks: 1" in health.reading
    nothing = np.empty(0, np.int64)
    ranks = tuple(replace(f, gaps=f.gaps.take(nothing)) for f in straggler.job.ranks)
    idle = with_job(straggler, ranks=ranks, ledger=straggler.job.ledger.take(nothing))
    loader = next(e for e in host_exhibits(alone(idle)) if e.id == "loader")
    assert loader.sheet.rows == () and loader.reading.startswith("No rank")


def test_steps_have_the_number_of_every_other_page(straggler: OpenRun) -> None:
    lane = next(lane for lane in straggler.timeline.lanes if lane.kind == "steps")
    marks = straggler.job.ranks[0].steps["index"].tolist()
    names = [name for name in straggler.timeline.names if name.startswith("step ")]
    assert lane.slices == len(marks)
    assert names == [f"step {i}" + (f" (marked {mark})" if i != mark else "") for i, mark in enumerate(marks)]


def _grouping(job: JobFacts, name: str) -> Any:
    return next(grouping for grouping in arrangement(job)["groupings"] if grouping["id"] == name)


def _with_groups(job: JobFacts, *groups: tuple[str, str]) -> JobFacts:
    """The job with these groups, as (ranks, role)."""
    ranks, roles = map(list, zip(*groups, strict=True))
    columns = {"size": [of.count(",") + 1 for of in ranks], "ranks": ranks, "role": roles}
    return replace(job, groups=GROUPS.table({**columns, "name": [str(i) for i in range(len(groups))]}))


def test_lateness_is_that_of_the_page_ranks_and_groups_of_a_role_divide_them(straggler: OpenRun) -> None:
    late = dict(arrangement(straggler.job)["lateness_us"])
    medians_us = np.nanmedian(lateness_us(straggler.job), axis=1)
    assert late == pytest.approx(dict(zip(straggler.job.rank_ids, medians_us, strict=True)))
    assert max(late, key=lambda rank: late[rank]) in straggler.report.ranked_findings()[0].ranks
    job = _with_groups(straggler.job, ("0,1", "tp"), ("2,3", "tp"), ("2,3", "tp"), ("0,1,2,3", "dp"))
    groups = _grouping(job, "tp")["groups"]
    assert groups == [["tensor-parallel group: ranks 0, 1", [0, 1]], ["tensor-parallel group: ranks 2, 3", [2, 3]]]


def test_stages_are_the_pipelines_and_what_groups_do_not_tell_has_a_reason(
    straggler: OpenRun, pipeline: OpenRun
) -> None:
    assert [ranks for _, ranks in _grouping(pipeline.job, "pp")["groups"]] == _stages(pipeline.job)
    job = _with_groups(straggler.job, ("0,1", "tp"), ("1,2", "tp"), (",".join(map(str, straggler.job.rank_ids)), "dp"))
    told = _grouping(job, "tp")
    assert told == {"id": "tp", "words": told["words"], "groups": [], "why": "the tensor-parallel groups overlap"}
    assert _grouping(job, "dp")["why"] == "one data-parallel group holds every rank"
    assert "no pipeline" in _grouping(replace(job, pipeline=None), "pp")["why"]
    assert "known to be" in _grouping(_with_groups(straggler.job, ("0,1", "group of 2")), "dp")["why"]


def _stages(job: JobFacts) -> list[list[int]]:
    assert job.pipeline is not None
    return [[job.rank_ids[position] for position in stage] for stage in job.pipeline.stages]


def _open(page: Page, path: str = "/timeline") -> None:
    page.visit(path)
    page.wait("return ddprof.timeline && ddprof.timeline.root.dataset.arranged")


def _list(page: Page, number: int) -> Select:
    return Select(page.menu().find_elements("css selector", ".tl-orders select")[number])


def test_the_latest_rank_comes_first(page: Page, straggler: OpenRun) -> None:
    _open(page)
    late = dict(arrangement(straggler.job)["lateness_us"])
    assert page.js(RANKS) == sorted(late)
    expected = sorted(late, key=lambda rank: -late[rank])
    _list(page, 1).select_by_value("late")
    assert page.js(RANKS) == expected
    head = page.js("return ddprof.timeline.rows.find((r) => r.isRank).label")
    assert f"rank {expected[0]}" in head and "+" in head
    page.wait("return location.search.includes('order=late')")
    _open(page, "/timeline?order=late")
    assert page.js(RANKS) == expected and page.trouble() == []


def test_groups_fold_to_their_latest_rank(page: Page, pipeline: OpenRun) -> None:
    _open(page, "/timeline?run=1&by=pp")
    stage, *others = _stages(pipeline.job)
    assert [head[:9] for head in page.js(HEADS)] == [f"▾ stage {n}" for n in range(1 + len(others))]
    page.js("const t = ddprof.timeline; t.toggleRank(t.rows.find((r) => r.isHost))")
    first = page.js("return ddprof.timeline.rows.filter((r) => r.isHost)[0]")
    late = dict(arrangement(pipeline.job)["lateness_us"])
    assert first["isClosed"] and first["rank"] == max(stage, key=lambda rank: (late.get(rank, -1e18), -rank))
    assert not [r for r in page.js("return ddprof.timeline.rows") if r.get("isRank") and r["rank"] in stage]
    # What leads to a rank of a closed group opens the group.
    page.js(f"const t = ddprof.timeline; t.open.add({stage[-1]}); t.layout()")
    assert page.js(HEADS)[0].startswith("▾") and page.trouble() == []


def test_what_is_not_known_is_disabled_with_the_reason_and_very_many_ranks_begin_closed(page: Page) -> None:
    """The lanes of one rank, given out as those of 300: rows are few until a group is opened."""
    _open(page)
    options = {o.get_attribute("value"): o for o in _list(page, 0).options}
    assert "no pipeline" in options["pp"].text and not options["pp"].is_enabled() and options["none"].is_enabled()
    page.js("""
      const t = ddprof.timeline, mine = t.lanesOn(0);
      const lanes = Array.from({ length: 300 }, (_, rank) => mine.map((l) => ({ ...l, rank, host: "" }))).flat();
      t.info = { ...t.info, lanes };
      t.open.clear(); t.arrange(); t.layout();""")
    rows = page.js("return ddprof.timeline.rows.length")
    assert rows == 19 and page.js("return ddprof.timeline.by") == "block"
    page.js("ddprof.timeline.toggleGroup(ddprof.timeline.groups()[0])")
    assert page.js("return ddprof.timeline.rows.length") == rows + 16


@pytest.fixture
def tuned_page(page_of: PageOf, tuned_folder: Path) -> Page:
    return page_of(*load([str(tuned_folder)]))


@pytest.mark.parametrize("path", one_in(2, ["/tuning", "/findings", "/what-if"]))
def test_pages_with_trials_fit_on_a_desk_and_on_a_phone_and_are_clean(tuned_page: Page, path: str) -> None:
    assert tuned_page.visit(path) == []
    for width, height in ((390, 844), (1440, 900)):  # px of a phone and of a desk
        with tuned_page.window(width, height):
            assert tuned_page.js("return document.documentElement.scrollWidth") <= width
    tuned_page.js("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    for theme in ("light", "dark") if path == "/tuning" else ("dark",):
        tuned_page.js(f"document.documentElement.dataset.theme = '{theme}'")
        assert serious(tuned_page) == [], theme


def _press_copy(page: Page) -> str:
    """Press the first button that copies, and return what it has put on the clipboard."""
    # A clipboard of the test: that of the machine belongs to whoever sits at it.
    page.js(
        "Object.defineProperty(navigator, 'clipboard', { configurable: true, value: "
        "{ writeText: (text) => { window.copied = text; return Promise.resolve(); } } })"
    )
    page.js("document.querySelector('.page:not([hidden]) button.copy, #content button.copy').click()")
    return str(page.wait("return window.copied"))


def test_a_button_copies_the_command_or_selects_it_without_a_clipboard(tuned_page: Page, tuned_folder: Path) -> None:
    tuned_page.visit("/tuning")
    assert _press_copy(tuned_page).startswith(f"ddprof run --apply {tuned_folder.resolve()}/FIXES.toml -- torchrun")
    tuned_page.wait("return document.querySelector('button.copy').textContent === 'Copied'")
    tuned_page.js("Object.defineProperty(navigator, 'clipboard', { configurable: true, value: undefined })")
    tuned_page.js("getSelection().removeAllRanges(); document.querySelector('button.copy').click()")
    tuned_page.wait("return getSelection().toString().startsWith('ddprof run --apply')")


def test_the_file_copies_too(file_of: PageOf, tuned_folder: Path) -> None:
    page = file_of(load([str(tuned_folder)])[0]).open("#tuning")
    page.wait("return !document.getElementById('tuning').hidden")
    assert _press_copy(page).startswith("ddprof run --apply") and serious(page) == []
