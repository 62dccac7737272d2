"""Runs that are served: names tell them apart, links hold, those that change are read again, tunings belong to them."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from ddprof.dashboard.runs import served, tunings
from ddprof.dashboard.runs.names import named_run, run_ids, run_names
from ddprof.dashboard.runs.open_run import OpenRun, load
from ddprof.dashboard.runs.served import Runs
from ddprof.dashboard.runs.tunings import tunings_of
from ddprof.dashboard.runs.view import view_of
from ddprof.errors import NoUsableInput
from ddprof.readers.side_files.manifests import Launch
from ddprof.report.json.contract import to_contract
from ddprof.report.model import Report
from ddprof.slices.live.exhibits import hosts_now
from ddprof.trials.document import FILE, write_document
from tests.dashboard.made import alone
from tests.dashboard.tuned import ANSWER, COMMAND, CWD, run_of_command, state

LAUNCH = Launch("torchrun --nproc-per-node=2 acme_train.py --name 'two words'", CWD)
OLDER, NEWER = "20260101T000000Z-tune-train", "20260201T000000Z-tune-train"


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
    assert alone(runs[0]).link("/ranks") == "/ranks"


def test_saved_reports_hold_no_events_and_a_session_the_job_of_the_report(tmp_path: Path, straggler: OpenRun) -> None:
    report, job = straggler.report, straggler.job
    file = tmp_path / "saved.json"
    file.write_text(json.dumps(to_contract(report)))
    opened = load([str(file)])[0]
    assert not opened.has_traces and opened.report.verdict == report.verdict
    with pytest.raises(NoUsableInput, match="holds no events"):
        _ = opened.job
    (tmp_path / "empty").mkdir()
    with pytest.raises(NoUsableInput):
        load([str(tmp_path / "empty")])
    assert job.rank_ids == report.run.ranks and job.step_ns / 1e3 == pytest.approx(report.steps.wall_us)
    for name in ("instances", "members", "ledger", "blame"):
        assert len(getattr(job, name)) == len(report.tables[name])


def test_a_grown_folder_is_read_again(straggler_traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "LEAST_PAUSE_S", 0.0)
    first, second, third, *_ = sorted(straggler_traces.glob("*.gz"))
    copied = [Path(shutil.copy2(file, tmp_path)) for file in (first, second)]
    runs = Runs([str(tmp_path)], load([str(tmp_path)]))
    assert len(runs.open_runs[0].report.run.ranks) == 2 and runs.refresh() == 1  # nothing changed
    copied.append(Path(shutil.copy2(third, tmp_path)))
    assert runs.refresh() == 2 and len(runs.open_runs[0].report.run.ranks) == 3
    for file in copied:
        file.unlink()
    assert runs.refresh() == 3 and runs.problem
    assert len(runs.open_runs[0].report.run.ranks) == 3  # what was shown stays


@pytest.mark.parametrize("raised", [OSError(2, "No such file", "x.json"), NoUsableInput("cut\x1b[31m"), KeyError("x")])
def test_whatever_goes_wrong_is_a_note(straggler: OpenRun, tmp_path: Path, monkeypatch, raised: Exception) -> None:
    monkeypatch.setattr(served, "LEAST_PAUSE_S", 0.0)
    runs = Runs([str(tmp_path)], [straggler])
    (tmp_path / "rank0.json").write_text("{}")
    with monkeypatch.context() as patch:
        patch.setattr(served, "load", Mock(side_effect=raised))
        assert runs.refresh() == 2 and runs.problem and "\x1b" not in runs.problem
        assert runs.refresh() == 2  # the same problem is no news
    assert runs.open_runs == (straggler,)
    monkeypatch.setattr(served, "load", lambda *_: [straggler, straggler])
    # A file that went is looked for again, even where nothing has changed since.
    assert runs.refresh() == (3 if isinstance(raised, OSError) else 2)


def test_what_is_no_file_beside_a_run_stops_no_look(straggler_traces: Path, tmp_path: Path) -> None:
    traces = {Path(shutil.copy2(file, tmp_path)).name for file in straggler_traces.glob("*.gz")}
    for name, target in (("gone.json", "nothing"), ("loop.json", "loop.json")):
        (tmp_path / name).symlink_to(tmp_path / target)
    for name in ("pipe.json", "host.h.1.counters.jsonl"):
        os.mkfifo(tmp_path / name)
    os.mkdir(tmp_path / "closed", 0)
    (tmp_path / "caf\udce9.json").write_text("{}")
    stamp = served.folder_stamp([str(tmp_path), str(tmp_path / "nothing")])
    assert {Path(name).name for name, _, _ in stamp} >= traces and hosts_now(str(tmp_path)) == []


def _names(folder: Path, launch: Launch | None = LAUNCH) -> list[str]:
    return [tuning.name for tuning in tunings_of(str(folder), launch)]


def test_a_served_tuning_is_its_diagnosis_and_bare_traces_have_none(tuned_folder: Path, tmp_path: Path) -> None:
    (opened,) = load([str(tuned_folder)])
    assert opened.has_traces and opened.launch == LAUNCH
    (tuning,) = opened.tunings
    assert (tuning.folder, tuning.document.result) == (os.path.realpath(tuned_folder), ANSWER)
    run = run_of_command(tmp_path / "made")
    (run / "manifest.json").unlink()
    (opened,) = load([str(run)])
    assert opened.launch is None and opened.run_folder == "" and opened.tunings == []


def test_a_run_has_the_tunings_beside_it_of_the_same_command_the_newest_first(tmp_path: Path) -> None:
    run = tmp_path / "a-run"
    for folder, answer in ((tmp_path / OLDER, None), (tmp_path / NEWER, None), (run / "inside", ANSWER)):
        write_document(state(), folder, answer)
    assert _names(run) == [NEWER, OLDER] and _names(run, None) == []
    assert _names(run, Launch(LAUNCH.command, "/elsewhere")) == [] == _names(run, Launch("python acme_train.py", CWD))
    assert COMMAND[-1] == "two words"  # quoted in the manifest, a list in tune.json


def test_what_cannot_be_read_is_none_what_changes_is_read_again_and_of_many_the_newest(tmp_path: Path) -> None:
    for answer in (None, ANSWER):
        write_document(state(), tmp_path / OLDER, answer)
        assert tunings_of(str(tmp_path / "run"), LAUNCH)[0].document.result == answer
    (tmp_path / OLDER / FILE).write_text("{")
    assert _names(tmp_path / "run") == [] and _names(tmp_path / "gone" / "run") == []
    for number in range(tunings.MOST + 3):
        write_document(state(), tmp_path / "many" / f"{number:02d}-tune-train")
    newest = range(tunings.MOST + 2, 2, -1)
    assert _names(tmp_path / "many" / "run") == [f"{number:02d}-tune-train" for number in newest]
