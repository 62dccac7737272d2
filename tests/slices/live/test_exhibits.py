"""A run folder that is still written: the page says who is behind, before the first trace and without keeping state."""

import json
from pathlib import Path

import pytest

from ddprof.dashboard.pages.catalogue import PAGES, page_at
from ddprof.dashboard.runs.open_run import OpenRun, load
from ddprof.dashboard.runs.view import View
from ddprof.errors import NoUsableInput
from ddprof.report.phrases import run_words
from ddprof.slices.live.exhibits import TAIL_BYTES, exhibits, hosts_now
from tests.dashboard.conftest import RUNNING_STEPS

ODD_LINES = """[]|null|1|"x"|{"cpu": []}|{"cpu": {"jiffies": 7}}|{"cpu": {"jiffies": {"user": "x"}}}|{"memory": [1]}
{"memory": {"total_bytes": NaN}}|{"memory": {"total_bytes": 1e999}}|{"gpus": {"a": 1}}|{"gpus": [7]}
{"gpus": [{"index": []}]}|{"cpu": {"jiffies": {"user": 18446744073709551616}}}""".replace("\n", "|").split("|")


def test_a_run_without_a_trace_yet_is_watched_and_opens_every_page(running: Path) -> None:
    (opened,) = load([str(running)])
    assert "no trace yet" in opened.report.verdict.headline and not opened.has_traces
    assert "unknown" not in run_words(opened.report)
    shown = {e.id: e for e in exhibits(View(opened, {}, (opened,)))}
    assert "Rank 1 is 5 ms late per step, in data" in shown["live-now"].reading
    assert [row[0] for row in shown["live-now"].sheet.rows] == [0, 1]
    alone = next(iter(exhibits(View(opened, {"ranks": "0"}, (opened,)))))
    assert shown["live-now"].reading.startswith("2 ranks at") and alone.reading.startswith("1 rank at")
    assert len(shown["live-steps"].sheet.rows) == RUNNING_STEPS
    for page in PAGES:
        assert page.content(View(opened, {}, (opened,))), page.path


def test_a_finished_run_says_that_nothing_runs_an_empty_one_is_refused(straggler: OpenRun, tmp_path: Path) -> None:
    with pytest.raises(NoUsableInput):
        load([str(tmp_path)])
    view = View(straggler, {}, (straggler,))
    assert list(exhibits(view)) == [] and "This job is not running" in str(page_at("/live").content(view)[-1])


def test_counters_are_read_from_the_tail_and_damaged_lines_are_skipped(tmp_path: Path) -> None:
    def sample(busy: int) -> str:
        cpu = {"jiffies": {"user": busy, "idle": 100 - busy}}
        return json.dumps({"at_ns": 1, "cpu": cpu, "memory": {"total_bytes": 10, "available_bytes": 4}})

    lines = ["x" * TAIL_BYTES, sample(0).replace('"idle": 100', '"idle": 0'), "{broken", sample(50), '{"at_ns']
    (tmp_path / "host.h1.7.counters.jsonl").write_text("\n".join(lines))
    (host,) = hosts_now(str(tmp_path))
    assert (host.host, host.newest.memory.used_bytes, host.newest.memory.total_bytes) == ("h1", 6, 10)
    assert host.cpu_percent == pytest.approx(50.0)
    # A counter that falls makes no host busier than it can be.
    samples = [{"cpu": {"jiffies": {"user": n, "idle": n, "iowait": 90 - n}}} for n in (0, 40)]
    (tmp_path / "host.h1.7.counters.jsonl").write_text("\n".join(map(json.dumps, samples)))
    assert hosts_now(str(tmp_path))[0].cpu_percent == pytest.approx(50.0)


@pytest.mark.parametrize("line", [*ODD_LINES, "[" * 9_000])
def test_samples_of_another_type_are_skipped(tmp_path: Path, line: str) -> None:
    good = '{"memory": {"total_bytes": 10, "available_bytes": 4}}'
    (tmp_path / "host.h1.7.counters.jsonl").write_text(f"{good}\n{line}\n")
    (host,) = hosts_now(str(tmp_path))
    assert (host.newest.memory.used_bytes, host.cpu_percent, host.newest.gpus) == (6, None, ())
