"""Names tell served runs apart, and a link to one holds whatever the order of the arguments."""

from dataclasses import replace

from ddprof.dashboard.runs.names import named_run, run_ids, run_names
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.dashboard.runs.view import View, view_of
from ddprof.report.model import Report


def _read_from(report: Report, folder: str, name: str = "traces") -> Report:
    return replace(report, run=replace(report.run, name=name, paths=(f"{folder}/rank0.json.gz",)))


def test_folders_tell_runs_of_one_name_apart(straggler_report: Report) -> None:
    runs = [_read_from(straggler_report, f"/data/{job}/traces") for job in ("mnist", "gpt")]
    assert run_names(runs) == ["mnist/traces", "gpt/traces"]
    assert run_names([runs[0], _read_from(straggler_report, "/data/gpt/traces", "gpt")]) == ["traces", "gpt"]
    assert run_names([runs[0], runs[0]]) == ["data/mnist/traces (1)", "data/mnist/traces (2)"]


def test_a_link_names_the_same_run_in_any_order_also_of_two_readings_and_on_pages(straggler_report: Report) -> None:
    one, other = (_read_from(straggler_report, f"/data/{job}/traces") for job in ("mnist", "gpt"))
    there, back = run_ids([one, other]), run_ids([other, one])
    assert there == back[::-1] and len(set(there)) == 2 and named_run(there[0], [other, one]) == 1
    assert named_run("1", [one, other]) == 1 and named_run("nosuch", [one, other]) is None
    longer = replace(one, steps=replace(one.steps, count=9, wall_us=1.0))
    assert run_ids([longer]) == there[:1]  # a job that still writes keeps its link
    fast = replace(straggler_report, steps=replace(straggler_report.steps, wall_us=1.0))
    assert run_ids([fast, straggler_report]) == run_ids([straggler_report, fast])[::-1]
    runs = [OpenRun(one), OpenRun(other)]
    view = view_of(runs, {"run": "1"})
    assert view.opened is runs[1] and view.link("/ranks") == f"/ranks?run={view.ids[1]}"
    assert view_of(runs[::-1], {"run": view.ids[1]}).opened is runs[1]
    assert View(runs[0], {}, tuple(runs[:1])).link("/ranks") == "/ranks"
