"""The page Tuning, and what the other pages show of trials: the numbers of tune.json, commands that can be run."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from ddprof.dashboard.exhibits import tuning
from ddprof.dashboard.exhibits.parts import try_it
from ddprof.dashboard.exhibits.parts.exhibit import Exhibit
from ddprof.dashboard.figures.charts import Forecasts
from ddprof.dashboard.onefile.document import render
from ddprof.dashboard.pages.catalogue import page_at
from ddprof.dashboard.runs.open_run import OpenRun, load
from ddprof.report import calibration
from ddprof.trials.document import NOTHING, TuningAnswer, write_document
from tests.dashboard.made import alone, texts
from tests.dashboard.onefile_reader import File, equal_tables
from tests.dashboard.tuned import ANSWER, CWD, KEPT_ONE, PATCH, WHY, manifest, run_of_command, state, tuned
from tests.report.test_calibration import record

ENDING = "-- torchrun --nproc-per-node=2 acme_train.py --name 'two words'"


@pytest.fixture(scope="module")
def opened(tuned_folder: Path) -> OpenRun:
    return load([str(tuned_folder)])[0]


def _shown(run: OpenRun, path: str = "/tuning") -> dict[str, Exhibit]:
    return {exhibit.id: exhibit for exhibit in page_at(path).exhibits(alone(run))}


def _words(run: OpenRun, path: str) -> str:
    return " ".join(texts(page_at(path).content(alone(run))))


def _with(folder: Path, answer: TuningAnswer | None) -> OpenRun:
    return load([str(tuned(folder, answer))])[0]


def test_the_answer_comes_first_with_the_command_that_keeps_it(opened: OpenRun, tuned_folder: Path) -> None:
    first = next(iter(_shown(opened).values()))
    assert first.reading.startswith("KEEP: 28 % of the step saved, 100 ms -> 72 ms (95 % interval 26 % to 30 %")
    assert "the same in every bit" in first.reading
    assert "5.0 % of the step or more would have been seen" in first.reading
    assert first.sheet.rows == (("bucket_cap_mb", 25, "acme_train.py:7", "comm.latency_bound"),)
    (listing,) = first.listings
    assert listing.text == f"ddprof run --apply {tuned_folder.resolve()}/FIXES.toml {ENDING}" and CWD in listing.words


def test_gains_stand_beside_their_predictions_which_are_quoted_if_verified(opened: OpenRun, tmp_path: Path) -> None:
    exhibit = _shown(opened)["tuning-trials"]
    kept, lost, failed = exhibit.sheet.rows
    assert kept[2:] == pytest.approx(("kept", 30, 25, 35, 28, 26, 30, 5))
    assert lost[6:] == (pytest.approx(1.0), None, None, 2) and failed[6:] == (None,) * 4
    assert isinstance(exhibit.chart, Forecasts)
    assert list(exhibit.chart.labels) == ["bucket_cap_mb=25", "bucket_cap_mb=50"]
    assert exhibit.chart.measured[0] is not None and exhibit.chart.measured[0].ends == pytest.approx((26, 30))
    assert "12 of 14 similar predictions were within range" in exhibit.reading
    assert "like this" not in _shown(_with(tmp_path / "t", replace(ANSWER, calibration={})))["tuning-trials"].reading


def test_losers_have_their_reason_and_memory_its_headroom_unless_on_cpus(opened: OpenRun, tmp_path: Path) -> None:
    shown = _shown(opened)
    said = {"lost": "gained less than 3.0 % of the step in each of 2 pairs", "failed": WHY}
    said["not tried"] = "changes the precision of the training (--allow-numerics)"
    assert [row[1:3] for row in shown["tuning-lost"].sheet.rows] == [*said.items()]
    memory = shown["tuning-memory"]
    assert memory.reading == "48 GiB of 80 GiB of the fullest device are left, 50 GiB without the settings."
    assert memory.sheet.rows[0][0] == "as it is" and len(memory.sheet.rows) == 3
    assert shown["tuning-patch"].listings[0].text == PATCH
    assert [row[1] for row in shown["tuning-runs"].sheet.rows] == ["diagnosis", "baseline", KEPT_ONE.name]
    bare = tuple(replace(tried, memory=None) for tried in ANSWER.tried)
    assert "tuning-memory" not in _shown(_with(tmp_path / "t", replace(ANSWER, baseline_memory=None, tried=bare)))


def test_a_tuning_that_goes_on_shows_how_and_one_that_tried_nothing_says_so(tmp_path: Path) -> None:
    shown = _shown(_with(tmp_path / "t", None))
    assert list(shown) == ["tuning", "tuning-runs"] and len(shown["tuning"].sheet.rows) == 3
    assert "Runs made: 3; 48 s of a budget of 600 s are spent" in shown["tuning"].reading
    assert shown["tuning"].listings[0].text == f"ddprof tune --resume {(tmp_path / 't').resolve()}"
    nothing = replace(ANSWER, verdict=NOTHING, chosen=(), measured=None, after_us=None, tried=(), smallest_share=None)
    shown = _shown(_with(tmp_path / "u", replace(nothing, patch="", untried=())))
    assert shown["tuning"].reading.startswith("NOTHING TO CHANGE. No setting removes a cause that costs 3.0 %")
    assert list(shown) == ["tuning", "tuning-memory", "tuning-runs"] and shown["tuning"].listings == ()


def test_findings_have_their_trials_and_the_commands_to_try(opened: OpenRun) -> None:
    words = _words(opened, "/findings")
    assert f"ddprof tune --only bucket_cap_mb {ENDING}" in words
    assert f"ddprof run --set bucket_cap_mb=25 {ENDING}" in words
    assert "bucket_cap_mb=50 at acme_train.py:7: measured 1.0 % (2 pairs of runs: too few for an interval)" in words
    assert "gc_interval=100" not in words  # of another finding


def test_files_below_the_folder_of_the_job_are_named_as_seen_from_there(tmp_path: Path) -> None:
    folder = tuned(tmp_path / "runs" / "20260101T000000Z-tune-train")
    manifest(folder / "trials" / "000-diagnosis" / "run", "python x.py", str(tmp_path.resolve()))
    (listing,) = _shown(load([str(folder)])[0])["tuning"].listings
    assert listing.text == "ddprof run --apply runs/20260101T000000Z-tune-train/FIXES.toml -- python x.py"


def test_what_if_has_tried_settings_and_names_a_fixes_file_if_it_is_there(opened: OpenRun, tmp_path: Path) -> None:
    exhibit = _shown(opened, "/what-if")["what-if-tried"]
    assert len(exhibit.sheet.rows) == 3 and isinstance(exhibit.chart, Forecasts)
    run = load([str(run_of_command(tmp_path / "made"))])[0]
    fixes, told = Path(run.run_folder) / "FIXES.toml", [f"ddprof tune {ENDING}"]
    assert [listing.text for listing in _shown(run, "/what-if")["what-if"].listings] == told
    fixes.write_text("schema = 'ddprof.fixes/1'")
    told += [f"ddprof run --apply {fixes} {ENDING}"]
    assert [listing.text for listing in _shown(run, "/what-if")["what-if"].listings] == told


def test_without_a_tuning_the_page_offers_one_if_its_command_can_be_shown(tmp_path: Path, straggler: OpenRun) -> None:
    subject, folder = page_at("/tuning"), run_of_command(tmp_path / "made")
    (run,) = load([str(folder)])
    assert subject.is_empty(alone(run)) and _shown(run)["tuning"].listings[0].text == f"ddprof tune {ENDING}"
    assert subject.is_empty(alone(straggler)) and _shown(straggler)["tuning"].listings == ()
    for command in ("acme_train.py 'a\nb'", "acme_train.py \x1b[31m", "acme_train.py \u202egnp.x"):
        manifest(folder, command)
        (run,) = load([str(folder)])
        assert run.launch is not None
        assert try_it.of_run(run) == () == try_it.of_finding(run, run.report.ranked_findings()[0])


def test_the_address_chooses_among_several_tunings(tmp_path: Path) -> None:
    run = load([str(tuned(tmp_path / "20260101T000000Z-tune-train"))])[0]
    write_document(state(), tmp_path / "20260201T000000Z-tune-train")
    view = alone(run, tuning="20260201T000000Z-tune-train")
    assert [e.id for e in tuning.exhibits(view)] == ["tuning", "tuning-runs"] and view.kept == view.query
    assert len(_shown(run)) > 2  # its own without an address
    assert "20260201T000000Z-tune-train: shown" in " ".join(texts(page_at("/tuning").content(view)))


def test_the_file_has_the_same_tables_and_commands_and_redacted_neither_nor_names(opened: OpenRun) -> None:
    text, redacted = render(opened), render(opened, key=b"key")
    assert equal_tables(File(text), alone(opened)) > 100
    assert f"ddprof tune --only bucket_cap_mb {ENDING}".replace("'", "&#x27;") in text
    assert "+model = DDP(net, bucket_cap_mb=25)" in text
    assert "measured" in redacted and "tuning-trials" in redacted
    secrets = ("acme_train.py", "two words", "somebody", "secret_module_of_acme", "DDP(net", opened.tunings[0].name)
    assert [secret for secret in secrets if secret in redacted] == []


def test_text_of_a_tuning_is_cleaned(tmp_path: Path) -> None:
    evil = "\x1b[31m<script>"
    tried = tuple(replace(t, settings=(evil,), why=evil, finding=evil) for t in ANSWER.tried)
    run = _with(tmp_path / "t", replace(ANSWER, tried=tried, patch=f"+++ b/{evil}\n+{evil}\n", by_hand=((evil, evil),)))
    for exhibit in _shown(run).values():
        cells, listed = [str(v) for row in exhibit.sheet.rows for v in row], [t.text for t in exhibit.listings]
        assert not any("\x1b" in words for words in (exhibit.reading, *cells, *listed)), exhibit.id
    assert "<script>" not in render(run).replace("<script>\n", "").partition("<main")[2].partition("</main>")[0]


def test_the_dashboard_quotes_predictions_that_were_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DDPROF_DATA_HOME", str(tmp_path / "data"))
    run = run_of_command(tmp_path / "made")
    assert "like this" not in _words(load([str(run)])[0], "/findings")
    for number, outcome in enumerate(("inside", "inside", "outside", "disturbed")):
        calibration.append(run / calibration.FILE, record(outcome, f"2026-01-0{number + 1}", "comm.latency_bound"))
    assert "2 of 3 similar predictions were within range" in _words(load([str(run)])[0], "/findings")
