"""Files of a finished tuning: the fixes, the patch, the words."""

from pathlib import Path

import pytest
from fake_runs import Job, candidate, journal
from msgspec.structs import replace

from ddprof.report import calibration
from ddprof.settings.fixes_file import read_fixes
from ddprof.slices.tuning import handover
from ddprof.slices.tuning.search import search
from ddprof.slices.tuning.session import conclude, result
from ddprof.slices.tuning.text import plan_text, result_text
from ddprof.trials.document import TrialCandidate, TuningAnswer

SCRIPT = "from torch.utils.data import DataLoader\n\nloader = DataLoader([1], batch_size=2)  # of all\n"


def _answer(folder: Path, job: Job, *candidates: TrialCandidate) -> tuple[TuningAnswer, handover.Handover]:
    (folder / "train.py").write_text(SCRIPT)
    made = journal(folder, job)
    answer = result(made, search(made, candidates))
    return answer, handover.hand_over(answer, made.state, folder)


def _loader(value: int) -> TrialCandidate:
    return replace(candidate("num_workers", value), at="train.py:3")


def test_the_chosen_settings_are_a_fixes_file_and_a_patch(tmp_path: Path) -> None:
    pytest.importorskip("libcst")
    answer, left = _answer(tmp_path, Job({"num_workers=4": 0.5}), _loader(4))
    assert left.fixes is not None and "+loader = DataLoader([1], batch_size=2, num_workers=4)  # of all" in left.diff
    (fix,) = read_fixes(left.fixes)
    assert dict(fix.values) == {"num_workers": 4} and fix.at == "train.py:3" and fix.finding == "input.starved"
    assert (tmp_path / handover.PATCH).read_text() == left.diff
    words = "\n".join(result_text(answer, left))
    assert words.startswith("KEEP: ") and "100 ms -> 49.9 ms" in words and "the same in every bit" in words
    assert "+loader = DataLoader([1], batch_size=2, num_workers=4)  # of all" in words
    assert "predicted 50 % (range 45 % to 55 %)" in " ".join(words.split()) and "95 % interval" in words


def test_nothing_to_keep_leaves_no_file_and_says_what_was_not_tried(tmp_path: Path) -> None:
    answer, left = _answer(tmp_path, Job(noise=0.02), _loader(4))
    assert left == handover.Handover() and not (tmp_path / "FIXES.toml").exists()
    words = "\n".join(result_text(answer, left))
    assert words.startswith("NOTHING TO CHANGE") and "lost      num_workers=4" in words
    answer, left = _answer(tmp_path, Job())
    words = " ".join("\n".join(result_text(answer, left)).split())
    assert "no setting removes a cause that costs 3.0 % of the step or more" in words and "1 run," in words


def test_a_whole_tuning_is_one_document_and_its_predictions_are_quoted(tmp_path: Path, monkeypatch: object) -> None:
    monkeypatch.setenv("DDPROF_DATA_HOME", str(tmp_path / "data"))  # type: ignore[attr-defined]
    (tmp_path / "train.py").write_text(SCRIPT)
    made = journal(tmp_path, Job({"num_workers=4": 0.5}))
    made.state.candidates = (_loader(4),)
    answer, _ = conclude(made)
    assert answer.calibration["input.starved"].total == 1
    words = " ".join("\n".join(result_text(answer, handover.Handover())).split())
    assert "1 of 1 similar prediction was within range" in words
    records = calibration.read(calibration.user_file())
    assert [record.settings for record in records] == [("num_workers=4",)]
    handover.keep(records, tmp_path)  # whoever resumes a tuning that has ended records nothing twice
    assert len(calibration.read(calibration.user_file())) == 1
    text = (tmp_path / "tune.json").read_text()
    assert '"schema": "ddprof.tune/1"' in text and '"verdict": "keep"' in text and '"trials"' in text


def test_the_plan_tells_what_is_run_and_for_how_long(tmp_path: Path) -> None:
    made = journal(tmp_path, Job())
    lines = plan_text([_loader(4)], made.state.plan, 12.0, 580.0)
    assert lines[0] == "1 candidate, by predicted gain:" and "num_workers=4: 50 % (range 45 % to 55 %)" in lines[1]
    assert "ended after 50 steps, the last 40 of them timed" in lines[-2] and "580 s" in lines[-2]
    assert "3 pairs (72 s) at 1.5 % noise" in lines[-1] and "The budget pays for 24 pairs;" in lines[-1]
    assert "pays for 2 pairs, too few" in plan_text([_loader(4)], made.state.plan, 25.0, 120.0)[-1]
