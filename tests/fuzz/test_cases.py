"""Damaged inputs, run folders that change while they are read, and the harness itself: it sees what must not pass."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from fuzzing import judge, reports
from fuzzing.__main__ import fewer, minimised
from fuzzing.answers import Answer
from fuzzing.cases import JSON, Case, kept
from fuzzing.counts import touched
from fuzzing.judge import Bounds, Failure, Sound
from fuzzing.mutations import MUTATIONS
from fuzzing.seeds import SOUND, seed, shared_folder
from fuzzing.tree import Fifo, Link, Socket, Unreadable, Vanishing, plant

FOLDER = Path(__file__).resolve().parent
FIRST = 1_000
TIMEOUT_S = 900


def run(out: Path, *arguments: str) -> list[dict[str, Any]]:
    """Groups of failures. The harness runs in a process of its own: its workers are forked from one without threads."""
    line = [sys.executable, "-m", "fuzzing", "--processes=1", "--json", str(out), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(FOLDER), "OMP_NUM_THREADS": "1"}
    how: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "timeout": TIMEOUT_S}
    done = subprocess.run(line, cwd=out.parent, env=environment, text=True, check=False, **how)
    assert out.exists(), done.stdout
    groups: list[dict[str, Any]] = json.loads(out.read_text())
    return groups


@pytest.mark.parametrize("count", [30, pytest.param(300, marks=pytest.mark.slow)])
def test_the_first_cases(count: int, tmp_path: Path) -> None:
    assert run(tmp_path / "failures.json", "--everywhere", f"--count={count}", f"--seed={FIRST}") == []


@pytest.fixture(scope="module")  # so that what it costs is not one test's
def failed_again(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return run(tmp_path_factory.mktemp("kept") / "failures.json", "--kept")


def test_every_input_that_failed_before(failed_again: list[dict[str, Any]]) -> None:
    """In less time and memory than a new case may take."""
    assert failed_again == []


def test_kept_inputs_are_small_and_say_what_they_were() -> None:
    told = json.loads((FOLDER / "found" / "what.json").read_text(encoding="utf-8"))
    folders = {path.name: path for path in (FOLDER / "found").iterdir() if path.is_dir()}
    assert set(told) == set(folders)
    sizes = {name: sum(f.stat().st_size for f in path.rglob("*") if f.is_file()) for name, path in folders.items()}
    assert {name: size for name, size in sizes.items() if size > 20_000} == {}
    assert all(0 < len(entry["what"]) < 200 for entry in told.values())
    shared = shared_folder()
    is_there = shared is not None and (shared / "wild" / "broken").is_dir()
    assert any(case.seed.startswith("broken-") for case in kept()) == is_there


def test_a_name_makes_the_same_case_again() -> None:
    case = Case.named("on_devices/text_flip/17")
    assert case.name == "on_devices/text_flip/17"
    assert (case.tree, case.command) == (Case.named(case.name).tree, Case.named(case.name).command)
    assert case.tree != case.sound


@pytest.mark.parametrize("name", sorted(MUTATIONS))
def test_mutations_are_pure_and_follow_from_a_number(name: str) -> None:
    effective = 0
    for seed_name in (path.name for path in SOUND.iterdir() if path.is_dir()):
        before = dict(seed(seed_name))
        for number in range(3):
            first, second = (MUTATIONS[name](seed(seed_name), Random(number)) for _ in range(2))
            assert first == second and dict(seed(seed_name)) == before
            effective += first != before
    assert effective or name == "as_it_is"


def test_every_kind_of_entry_is_planted(tmp_path: Path) -> None:
    tree = {"run/a": b"x", "run/b": Fifo(), "run/c": Socket(), "run/d": Link("gone"), "run/e": Unreadable()}
    vanishing = plant({**tree, "run/f": Vanishing(b"y", 2), "run/caf\udce9": b""}, tmp_path)
    found = {path.name: path for path in (tmp_path / "run").iterdir()}
    assert (found["b"].is_fifo(), found["c"].is_socket(), found["d"].is_symlink()) == (True, True, True)
    assert vanishing == {str(tmp_path / "run/f"): 2}
    found["e"].chmod(0o700)


def answer(code: int = 0, stdout: str = "", stderr: str = "", **more: Any) -> Answer:
    return Answer(code, stdout, stderr, more.get("error"), more.get("warned", ()), more.get("cpu_s", 0.1), 1 << 20)


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (answer(error=("x.py:f", "ValueError: x")), "traceback"),
        (answer(error=("x.py:f", "MemoryError: ")), "memory"),
        (answer(code=1, stderr="ddprof: internal error\n"), "exit code"),
        (answer(code=4, stderr="ddprof: run/rank0.pt.trace.json: empty\nmore\n"), "line"),
        (answer(code=4, stderr="ddprof: something is wrong\n"), "line"),
        (answer(code=4, stderr="ddprof: run: \x1b[31mred\n"), "escape"),
        (answer(code=4, cpu_s=21.0, stderr="ddprof: run: no trace\n"), "slow"),
        (answer(code=4, warned=(("x.py:f", "RuntimeWarning: overflow"),), stderr="ddprof: run: x\n"), "warning"),
        (answer(stdout='{"a": NaN}'), "report"),
        (answer(code=4, stderr="ddprof: run/rank0.pt.trace.json: not JSON\n"), ""),
    ],
)
def test_what_must_not_be_is_seen_and_a_line_with_the_file_is_good(given: Answer, kind: str, tmp_path: Path) -> None:
    case = Case("on_devices", "header_rank", 1)
    case.__dict__.update(command=JSON, target="run")
    assert {failure.kind for failure in judge.of_answer(given, case, tmp_path, Bounds())} == ({kind} if kind else set())


def test_events_lost_are_held_against_events_touched() -> None:
    (_, text), *_ = seed("on_devices").items()
    assert isinstance(text, bytes)
    cut = touched(text, text[: len(text) // 2])
    assert cut is not None and 60 < cut.touched < 80 and not cut.is_whole
    flipped = touched(text, text.replace(b'"dur": 8,', b'"dur": Na,', 1))
    assert flipped is not None and (flipped.touched, flipped.is_whole) == (1, False)
    document = json.loads(text)
    del document["traceEvents"][5:8]
    fewer_events = touched(text, json.dumps(document).encode())
    assert fewer_events is not None and (fewer_events.touched, fewer_events.is_whole) == (3, True)
    assert touched(text, text.replace(b'"schemaVersion": 1', b'"schemaVersion": x', 1)).touched == 0  # type: ignore[union-attr]


def lost(words: str, kept_events: int, change: bytes) -> list[Failure]:
    path = "run/rank0.pt.trace.json"
    case = Case("on_devices", "text_flip", 2)
    text = case.sound[path]
    assert isinstance(text, bytes)
    case.__dict__.update(tree={**case.sound, path: text.replace(b'"dur": 8,', change, 1)}, target="run")
    report = {"health": [{"issue": words}] if words else [], "run": {"missing_ranks": []}}
    return list(judge.of_counts(answer(stdout=json.dumps(report)), case, {path: kept_events}, Sound(None, {path: 95})))


def test_a_silent_drop_and_a_greedy_one_are_told_apart() -> None:
    assert [f.kind for f in lost("", 94, b'"dur": Na,')] == ["silent drop"]
    assert [f.kind for f in lost("rank0.pt.trace.json: 60 events missing", 35, b'"dur": Na,')] == ["greedy drop"]
    assert lost("rank0.pt.trace.json: 1 event missing", 94, b'"dur": Na,') == []
    assert lost("", 95, b'"dur": Na,') == []


def test_impossible_reports_are_seen() -> None:
    finding = {"id": "host.gc", "recoverable_us": {"low": 1, "value": 2, "high": 3}, "lost_us": 1, "confidence": 1.5}
    report = {
        "run": {"world_size": 10**9, "ranks": [0], "missing_ranks": []},
        "steps": {"count": 2, "wall_us": 10.0, "per_step_us": [10.0]},
        "ledger": {"per_rank": {"0": {"wall_us": 10.0, "compute": 3.0}}, "job": {"wall_us": 0.0}},
        "verdict": {"bound": "compute", "headline": "x"},
        "health": [{"issue": "two\nlines", "effect": "x"}],
        "findings": [{**finding, "ranks": [7]}],
    }
    found = " ".join(reports.defects(json.dumps(report)))
    said = ("1000000000 ranks", "2 steps, but 1", "not one line", "do not sum", "confidence 1.5", "not of the job")
    assert [words for words in said if words not in found] == []


def test_an_input_is_made_smaller_while_it_still_fails() -> None:
    assert fewer(list(range(40)), lambda items: {3, 17} <= set(items)) == [3, 17]
    tree = {"run/a.json": json.dumps({"x": 1, "traceEvents": [{"n": n} for n in range(50)]}).encode(), "run/b": b"y"}
    smallest = minimised(tree, lambda candidate: b'"n": 7}' in candidate.get("run/a.json", b""), 10.0)
    assert smallest == {"run/a.json": b'{"traceEvents": [{"n": 7}]}'}


RANKS = 2
GOOD_CODES = (0, 3, 4)  # 4: nothing to analyze yet, in one line

Job = tuple[subprocess.Popen[bytes], Path]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory, repo_root: Path) -> Iterator[Job]:
    """Two gloo ranks that sleep most of the time and open a window of three steps every ten, and their run folder."""
    folder = tmp_path_factory.mktemp("beside") / "run"
    ended, scripts = folder.parent / "ended", repo_root / "tests/capture/scripts"
    capture = ["-m", "ddprof.cli.main", "run", "--run-dir", str(folder), "--skip=2", "--steps=3", "--every=10", "--"]
    loop = [scripts / "forked_ranks.py", RANKS, scripts / "loop.py", "--sleep=0.05", f"--until={ended}"]
    line = [sys.executable, *capture, sys.executable, *map(str, loop)]
    with subprocess.Popen(line, cwd=folder.parent, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield process, folder
        finally:
            ended.touch()
            process.wait(300)


@pytest.mark.torch
@pytest.mark.parametrize("count", [2, pytest.param(100, marks=pytest.mark.slow)])
def test_an_analysis_beside_a_capture_that_writes_never_fails(ddprof, count: int, job: Job) -> None:
    """From the first second, when there is nothing to read yet, until `count` analyses have had both ranks."""
    (process, folder), with_both = job, 0
    while with_both < count:
        code, out, err = ddprof("analyze", str(folder), "--format=json", "--workers=1")
        assert code in GOOD_CODES, (with_both, err)
        if code == 4:
            assert len(err.splitlines()) == 1, err
            seen = _files(folder)
            while process.poll() is None and _files(folder) == seen:  # the same again tells nothing and costs a CPU
                time.sleep(0.05)
        else:
            with_both += json.loads(out)["run"]["ranks"] == list(range(RANKS))
        assert process.poll() is None, "the job ended before the analyses did"


def _files(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*")}
