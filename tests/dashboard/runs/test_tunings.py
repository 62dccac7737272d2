"""Folders of `ddprof tune` that belong to a run."""

import os
from pathlib import Path

from ddprof.dashboard.runs import tunings
from ddprof.dashboard.runs.open_run import load
from ddprof.dashboard.runs.tunings import tunings_of
from ddprof.readers.side_files.manifests import Launch
from ddprof.trials.document import FILE, write_document
from tests.dashboard.tuned import ANSWER, COMMAND, CWD, run_of_command, state

LAUNCH = Launch("torchrun --nproc-per-node=2 acme_train.py --name 'two words'", CWD)


def _names(folder: Path, launch: Launch | None = LAUNCH) -> list[str]:
    return [tuning.name for tuning in tunings_of(str(folder), launch)]


def test_a_served_tuning_is_its_diagnosis_and_bare_traces_have_none(tuned_folder: Path, tmp_path: Path) -> None:
    (opened,) = load([str(tuned_folder)])
    assert opened.has_traces and opened.launch == LAUNCH
    assert [tuning.folder for tuning in opened.tunings] == [os.path.realpath(tuned_folder)]
    assert opened.tunings[0].document.result == ANSWER
    run = run_of_command(tmp_path / "made")
    (run / "manifest.json").unlink()
    (opened,) = load([str(run)])
    assert opened.launch is None and opened.run_folder == "" and opened.tunings == []


def test_a_run_has_the_tunings_beside_it_of_the_same_command_the_newest_first(tmp_path: Path) -> None:
    for name in ("20260101T000000Z-tune-train", "20260201T000000Z-tune-train"):
        write_document(state(), tmp_path / name)
    write_document(state(), tmp_path / "a-run" / "inside", ANSWER)
    assert _names(tmp_path / "a-run") == ["20260201T000000Z-tune-train", "20260101T000000Z-tune-train"]
    assert _names(tmp_path / "a-run", Launch(LAUNCH.command, "/elsewhere")) == []
    assert _names(tmp_path / "a-run", Launch("python acme_train.py", CWD)) == []
    assert _names(tmp_path / "a-run", None) == []
    assert COMMAND[-1] == "two words"  # quoted in the manifest, a list in tune.json


def test_what_cannot_be_read_is_none_what_changes_is_read_again_and_of_many_the_newest(tmp_path: Path) -> None:
    folder = tmp_path / "20260101T000000Z-tune-train"
    write_document(state(), folder)
    assert tunings_of(str(tmp_path / "run"), LAUNCH)[0].document.result is None
    write_document(state(), folder, ANSWER)
    assert tunings_of(str(tmp_path / "run"), LAUNCH)[0].document.result == ANSWER
    (folder / FILE).write_text("{")
    assert _names(tmp_path / "run") == [] and _names(tmp_path / "gone" / "run") == []
    for number in range(tunings.MOST + 3):
        write_document(state(), tmp_path / "many" / f"{number:02d}-tune-train")
    newest = range(tunings.MOST + 2, 2, -1)
    assert _names(tmp_path / "many" / "run") == [f"{number:02d}-tune-train" for number in newest]
