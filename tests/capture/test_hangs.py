"""Real jobs that hang or fail: noticed, named rightly, and a slow but healthy step is never called one."""

import json
from pathlib import Path

import pytest
from runs import ddprof_run, forked, good_run

from ddprof.api import analyze
from ddprof.slices.hangs.explain import explain

pytestmark = pytest.mark.torch
QUICK = {"DDPROF_HANG_LOOK_S": "0.5"}  # seconds without a step before the ranks are asked


# What is to be said of a fault: its kind, the rank that it begins with, words of the sentence. Twelve others, ended
# in five ways each: tests/acceptance/test_endings.py.
FAULTS: dict[str, tuple[set[str], int, tuple[str, ...]]] = {
    "message": ({"message"}, 0, ("Rank 1 waits for message 9 from rank 0", "in message()")),
    "store": ({"store"}, 1, ("in await_key()", "in prepare()")),
    "evaluation": ({"not_entered"}, 1, ("in evaluate()", "all_reduce")),
    "exception": ({"error"}, 1, ("Rank 1 raised ValueError", "bad sample 17", "in main()")),
}


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [3, 4])
@pytest.mark.parametrize("fault", FAULTS)
def test_faults_of_which_the_library_gives_up(fault: str, ranks: int, tmp_path: Path) -> None:
    done = ddprof_run(tmp_path, forked("hanging.py", fault, "1", "10", ranks=ranks))
    (kinds, rank, words), hang = FAULTS[fault], explain([str(done.folder)])
    assert done.code != 0
    assert hang.kind in kinds and hang.ranks == (rank,), hang.sentence
    assert all(word in hang.sentence for word in words), hang.sentence
    assert hang.sentence in done.output


def test_a_hang_is_noticed_while_it_lasts_and_ended_on_request(tmp_path: Path) -> None:
    done = ddprof_run(tmp_path, forked("hanging.py", "skipped"), "--on-hang", "abort", **QUICK)
    assert done.code != 0 and done.output.count("ddprof: the job hangs: no step for ") == 1
    told = done.manifest["hang"]
    assert told["kind"] == "skipped"
    assert told["sentence"].startswith("Rank 1 went on to all_reduce (hanging.py:")
    assert len(list(done.folder.glob("*.where.json"))) == 2
    assert explain([str(done.folder)]).sentence == told["sentence"]


def test_an_exception_is_told_first_by_every_screen(tmp_path: Path) -> None:
    done = ddprof_run(tmp_path, forked("hanging.py", "exception"), "--skip", "2", "--steps", "3")
    sentence = "Rank 1 raised ValueError at hanging.py:"
    assert done.code == 1 and f"the job ended with exit code 1. {sentence}" in done.output
    run = analyze(str(done.folder))
    assert run.report.failure is not None and run.report.failure.sentence.startswith(sentence)
    assert f"Failed: {sentence}" in str(run) and json.loads(run.to_json())["failure"]["ranks"] == [1]


def test_a_slow_step_is_no_hang(tmp_path: Path) -> None:
    """Rank 1 evaluates for a hundred times a step, and the ranks are asked again and again."""
    done = good_run(tmp_path, forked("hanging.py", "slow"), **QUICK)
    assert "hangs" not in done.output and done.manifest["hang"] is None
    assert not list(done.folder.glob("*.where.json")) and not (done.folder / "control.json").exists()
