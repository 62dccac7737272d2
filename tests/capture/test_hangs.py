"""Real jobs that hang or fail: noticed, named rightly, and a slow but healthy step is never called one."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from runs import SCRIPTS, TWO_RANKS, ddprof_run

from ddprof.analyzers.hangs.explain import explain
from ddprof.api import analyze

pytestmark = pytest.mark.torch
SCRIPT = str(SCRIPTS / "hanging.py")
QUICK = {"DDPROF_HANG_LOOK_S": "0.5"}  # seconds without a step before the ranks are asked


@dataclass(frozen=True)
class Told:
    """What is to be said of a fault: kind, ranks that it begins with, words of the sentence."""

    kinds: tuple[str, ...]
    ranks: tuple[int, ...]
    words: tuple[str, ...]


FAULTS = {
    "skipped": Told(("skipped",), (1,), ("all_reduce (hanging.py:", "in synchronise()")),
    "order": Told(("mismatch", "skipped"), (1,), ("barrier", "broadcast", "in synchronise()")),
    "shape": Told(("mismatch",), (1,), ("shape", "[2]", "[1]", "in synchronise()")),
    "python": Told(("not_entered",), (1,), ("in prepare()", "all_reduce")),
    "lock": Told(("not_entered",), (1,), ("all_reduce",)),
    "loader": Told(("not_entered",), (1,), ("in main()", "all_reduce", "worker 0 is at", "in __getitem__()")),
    "killed": Told(("killed",), (1,), ("Rank 1 was killed", "all_reduce")),
    "message": Told(("message",), (0,), ("Rank 1 waits for message 9 from rank 0", "in message()")),
    "store": Told(("store",), (1,), ("in await_key()", "in prepare()")),
    "evaluation": Told(("not_entered",), (1,), ("in evaluate()", "all_reduce")),
    "exception": Told(("error",), (1,), ("Rank 1 raised ValueError", "bad sample 17", "in main()")),
}


@pytest.mark.slow
@pytest.mark.parametrize("turn", range(10))
@pytest.mark.parametrize("fault", FAULTS)
def test_ten_faults_ten_times(fault: str, turn: int, tmp_path: Path) -> None:
    ranks = [sys.executable, str(SCRIPTS / "forked_ranks.py"), str(3 + turn % 2)]
    done = ddprof_run(tmp_path, [*ranks, SCRIPT, fault, "1", "10"])
    told, hang = FAULTS[fault], explain([str(done.folder)])
    assert done.code != 0
    assert hang.kind in told.kinds and hang.ranks == told.ranks, hang.sentence
    assert all(words in hang.sentence for words in told.words), hang.sentence
    assert hang.sentence in done.output


def test_a_hang_is_noticed_while_it_lasts_and_ended_on_request(tmp_path: Path) -> None:
    done = ddprof_run(tmp_path, [*TWO_RANKS, SCRIPT, "skipped"], "--on-hang", "abort", **QUICK)
    assert done.code != 0
    assert done.output.count("ddprof: the job hangs: no step for ") == 1
    told = done.manifest["hang"]
    assert told["kind"] == "skipped"
    assert told["sentence"].startswith("Rank 1 went on to all_reduce (hanging.py:")
    assert len(list(done.folder.glob("*.where.json"))) == 2
    assert explain([str(done.folder)]).sentence == told["sentence"]


def test_an_exception_is_told_first_by_every_screen(tmp_path: Path) -> None:
    done = ddprof_run(tmp_path, [*TWO_RANKS, SCRIPT, "exception"], "--skip", "2", "--steps", "3")
    sentence = "Rank 1 raised ValueError at hanging.py:"
    assert done.code == 1
    assert f"the job ended with exit code 1. {sentence}" in done.output
    run = analyze(str(done.folder))
    assert run.report.failure is not None and run.report.failure.sentence.startswith(sentence)
    assert f"FAILED: {sentence}" in str(run)
    assert json.loads(run.to_json())["failure"]["ranks"] == [1]


def test_a_slow_step_is_no_hang(tmp_path: Path) -> None:
    """Rank 1 evaluates for a hundred times a step, and the ranks are asked again and again."""
    done = ddprof_run(tmp_path, [*TWO_RANKS, SCRIPT, "slow"], **QUICK)
    assert done.code == 0, done.output
    assert "hangs" not in done.output
    assert done.manifest["hang"] is None
    assert not list(done.folder.glob("*.where.json"))
    assert not (done.folder / "control.json").exists()
