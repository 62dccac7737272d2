"""Logs of spans: who is late in which phase and since when, what stops ranks in turn, and what runs beside."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ddprof.cli.main import cli
from ddprof.errors import NoUsableInput, UsageError
from ddprof.readers.source import Source
from ddprof.slices.span_logs.read import read_span_logs
from tests.slices.span_logs.spans import RANKS, STEPS, write


def analyze(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["analyze", *arguments])


def told(folder: Path) -> dict[str, dict[str, Any]]:
    """Findings above info by id."""
    document = json.loads(analyze(str(folder), "--format", "json").stdout)
    assert document["schema"] == "ddprof.span_log/1" and document["ranks"] == list(range(RANKS))
    return {found["id"]: found for found in document["findings"] if found["severity"] != "info"}


@pytest.mark.parametrize("titan", [True, False])
@pytest.mark.parametrize(("first", "words"), [(1, "in every step."), (70, "in every step since step 70.")])
def test_a_late_rank_is_named_with_phase_and_since_when(tmp_path: Path, titan: bool, first: int, words: str) -> None:
    folder = write(tmp_path / "logs", fetch=lambda rank, step: 0.08 * (rank == 2 and step >= first), titan=titan)
    (found,) = told(folder).values()
    assert (found["id"], found["ranks"], found["phase"]) == ("straggler.input", [2], "fetching_batch")
    assert found["share"] == pytest.approx(0.08 / 0.49, rel=0.15) and found["page"] == "input.starved"
    assert words in " ".join(analyze(str(folder)).stdout.split())


def test_healthy_ranks_are_not_named_and_what_the_log_cannot_tell_is_said(tmp_path: Path) -> None:
    folder = write(tmp_path / "logs")
    assert told(folder) == {}
    said = " ".join(analyze(str(folder)).stdout.split())
    assert "A step takes 45" in said and "No span shows" in said and "wait for one another in fwd_bwd, optim" in said


def test_pauses_outside_the_step_wander_or_stay_or_stop_all(tmp_path: Path) -> None:
    turn = write(tmp_path / "turn", pause=lambda rank, step: 1.4 * (step % 10 == 0 and step // 10 % RANKS == rank))
    (found,) = told(turn).values()
    assert found["id"] == "rotating.gc" and not found["ranks"] and "4 ranks in turn" in found["summary"]
    assert "of each hour" in found["evidence"][0]
    one = told(write(tmp_path / "one", pause=lambda rank, step: 1.4 * (step % 10 == 0 and rank == 3)))
    assert [(name, found["ranks"]) for name, found in one.items()] == [("straggler.gc", [3])]
    every = told(write(tmp_path / "every", pause=lambda rank, step: 1.4 * (step % 10 == 0)))
    assert list(every) == ["pause.gc"] and "stops all ranks" in every["pause.gc"]["summary"]


def test_steps_that_take_longer_while_something_runs_beside_them(tmp_path: Path) -> None:
    (found,) = told(write(tmp_path / "logs", save=lambda rank, step: 0.2 * (step % 4 == 0))).values()
    assert found["id"] == "beside.slows_steps" and "async_save" in found["summary"]
    assert found["share"] == pytest.approx(0.2 / 4 / (0.456 + 0.05), rel=0.1)


@pytest.mark.parametrize("first", [50, STEPS])
@pytest.mark.parametrize("titan", [True, False])
def test_the_time_until_a_job_began_again_is_of_no_step(tmp_path: Path, titan: bool, first: int) -> None:
    """The process that goes on has threads of other numbers."""
    folder = write(tmp_path / "logs", titan=titan)
    at, thread = ("time_us", "tid") if titan else ("start_us", "thread")
    for file in folder.iterdir():
        said = [json.loads(line) for line in file.read_text().splitlines()]
        later = [one for one in said if one["step"] >= first]
        said += [{**one, at: one[at] + 600_000_000, thread: 77} for one in later]
        file.write_text("".join(json.dumps(one) + "\n" for one in said))
    assert told(folder) == {}
    phases = {row["phase"]: row for row in json.loads(analyze(str(folder), "--format", "json").stdout)["phases"]}
    assert phases["fwd_bwd"]["mean_us"] == pytest.approx(402_600, rel=0.01)
    assert read_span_logs([Source(str(file), "span_log")]).spans.popitem()[1][-1].beside is False


def test_too_few_steps_torn_lines_and_what_only_traces_have(tmp_path: Path) -> None:
    folder = write(tmp_path / "logs")
    file = folder / "training.global_rank_1.jsonl"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace('"rank": 1', '"rank": ', 3), encoding="utf-8")
    assert told(folder) == {} and "no whole record" in analyze(str(folder)).stdout
    file.write_text("\n".join(text.splitlines()[:24]), encoding="utf-8")
    assert isinstance(analyze(str(folder)).exception, NoUsableInput)
    for arguments in (["--format", "html"], ["--fail-on", "warning"], ["--fixes", str(tmp_path / "fixes.json")]):
        assert isinstance(analyze(str(folder), *arguments).exception, UsageError)
    shown = analyze(str(write(tmp_path / "secret-customer")), "--redact").stdout
    assert "secret-customer" not in shown and "A step takes" in shown


def test_a_log_that_was_cut_is_said_and_refused_under_strict(tmp_path: Path) -> None:
    folder = write(tmp_path / "logs")
    assert analyze(str(folder), "--strict").exit_code == 0
    file = folder / "training.global_rank_1.jsonl"
    packed = gzip.compress(file.read_bytes())
    file.write_bytes(packed[: len(packed) // 2])
    assert "1 damaged file held after the damage" in analyze(str(folder)).stdout
    assert isinstance(analyze(str(folder), "--strict").exception, NoUsableInput)
