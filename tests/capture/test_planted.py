"""Jobs with a planted slowness, named by line or by timers, and with mistakes that cost no time, which are remarked."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from runs import SCRIPTS, Captured, forked, good_run

from ddprof.analyzers.engine import Options, analyze
from ddprof.capture.files.step import REST
from ddprof.capture.stacks.totals import START_UP
from ddprof.report import phrases
from ddprof.report.gate import parse_gate
from ddprof.report.html.parts import render_summary
from ddprof.report.json.contract import from_contract, to_contract
from ddprof.report.markdown import render_markdown
from ddprof.report.model import Report
from ddprof.report.redaction.redact import redacted
from ddprof.report.text import render_text

pytestmark = pytest.mark.torch
SCRIPT = SCRIPTS / "planted.py"


def planted_line(place: str) -> int:
    """The line of the script that is marked so."""
    lines = SCRIPT.read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"# PLANTED {place}"))


def seen(path: Path) -> Counter[tuple[int, int, str]]:
    """(phase, line of the script, its function) -> ns, of the training thread after the start-up."""
    frames: list[Any] = []
    stacks: list[Any] = []
    found: Counter[tuple[int, int, str]] = Counter()
    for line in map(json.loads, path.read_text().splitlines()):
        frames += line.get("frames", [])
        stacks += line.get("stacks", [])
        for stack, phase, thread, _, ns, *_ in line.get("counts", []):
            while stack >= 0 and frames[stacks[stack][1]][0] != str(SCRIPT):
                stack = stacks[stack][0]
            if stack >= 0 and thread == 0 and phase != START_UP:
                _, function, number = frames[stacks[stack][1]]
                found[phase, number, function] += ns
    return found


# A function that sleeps, by both collectors, and one that computes.
SLOW = [
    pytest.param(*its, marks=pytest.mark.slow) for its in (("evaluation", "evaluate", "0"), ("python", "count", "1"))
]


@pytest.mark.parametrize(("place", "function", "native"), [("evaluation", "evaluate", "1"), *SLOW])
def test_the_slow_line_of_one_rank_is_named(tmp_path: Path, place: str, function: str, native: str) -> None:
    run = good_run(tmp_path, forked("planted.py", "--place", place, "--steps", "25"), DDPROF_NATIVE=native)
    files = (run.folder.glob(f"rank{rank}.*.0.stacks.jsonl") for rank in (0, 1))
    late, peer = (sum(map(seen, paths), Counter()) for paths in files)
    _, number, name = max((line for line in late if line[0] == REST), key=late.__getitem__)
    assert name == function and planted_line(place) - (place == "python") <= number <= planted_line(place), late
    assert not any(name == function for _, _, name in peer), peer
    for sidecar in run.sidecars:
        assert sidecar["stacks"]["samples"] > 0
        assert sidecar["stacks"]["collector"] == ("native" if native == "1" else "thread")
        assert sidecar["overhead"]["stacks_frac"] > 0
    assert run.manifest["overhead"]["stacks_frac"] > 0


def test_a_lock_of_loader_workers_is_named(tmp_path: Path) -> None:
    run = good_run(tmp_path, forked("planted.py", "--place", "lock", "--steps", "25"))
    workers = sorted(run.folder.glob("rank0.*.worker*.stacks.jsonl"))
    assert sorted(json.loads(path.read_text().splitlines()[0])["worker"] for path in workers) == [0, 1]
    lines: Counter[tuple[int, int, str]] = sum((seen(path) for path in workers), Counter())
    # A worker that waits for an index, as on a busy machine, is in the frame of the script that started it.
    (_, line, function), _ = next(most for most in lines.most_common() if most[0][2] != "<module>")
    assert function.endswith("__getitem__") and planted_line("lock") <= line <= planted_line("lock") + 1
    assert any("with self.lock:" in path.read_text() for path in workers)  # the text of its lines


def sampled(tmp_path: Path, ranks: str, slow_rank: int) -> tuple[Captured, Report]:
    job = forked("planted.py", "--place", "pause", "--rank", str(slow_rank), ranks=4)
    run = good_run(tmp_path, job, "--ranks", ranks)
    assert run.manifest["ranks"] == [0, 1, 2, 3]
    (report,) = analyze([run.folder], Options(cache=False))
    return run, report


@pytest.mark.slow
def test_a_slow_rank_outside_the_sample_is_named_by_its_timers_and_no_other_cause_is(tmp_path: Path) -> None:
    run, report = sampled(tmp_path, "sample:2", 1)
    assert sorted(run.traces) == [0, 3] and report.run.missing_ranks == (1, 2)
    times = run.manifest["step_times"]
    assert sorted(times) == ["0", "1", "2", "3"] and times["1"]["rest_ns"] > 90_000_000
    assert [f.id for f in report.findings if f.recoverable_us.value > 0.2 * report.steps.wall_us] == []
    assert "rank 1 was not traced" in report.verdict.headline
    assert any("ddprof run --ranks 0,1" in note.effect for note in report.health)


@pytest.mark.slow
def test_a_slow_rank_in_the_list_is_the_finding(tmp_path: Path) -> None:
    run, report = sampled(tmp_path, "0,2", 2)
    assert sorted(run.traces) == [0, 2] and report.findings[0].ranks == (2,)
    assert report.findings[0].id == "straggler.host"
    assert not any("timers" in note.issue for note in report.health)


MISTAKEN = SCRIPTS / "silent_mistakes.py"


def test_each_is_told_with_its_line_on_every_screen(tmp_path: Path) -> None:
    (report,) = analyze([good_run(tmp_path, forked(MISTAKEN.name), "--no-stacks").folder])
    found = {remark.id: remark for remark in report.training.remarks}
    marked = [text.rpartition("# ")[2] for text in MISTAKEN.read_text().splitlines()]
    line = {words: f":{marked.index(words) + 1}" for words in ("wrapped", "made", "iterated")}
    places = dict.fromkeys(("training.buffers_differ", "training.replicas_differ"), line["wrapped"])
    places |= {"training.set_epoch": line["iterated"], "training.unused_parameters": line["made"]}
    places["training.batch_norm"] = ""
    assert set(found) == set(places)
    for name, place in places.items():
        assert place in found[name].evidence[-1].text, found[name]
    assert "head.weight" in found["training.replicas_differ"].evidence[0].text
    assert "left_over.weight, left_over.bias" in found["training.unused_parameters"].summary
    assert (report.training.samples_per_rank, report.training.samples_per_step) == (4, 8)
    # They are no findings, but the worst one is told first, and gates count them.
    assert not any(finding.id.startswith("training.") for finding in report.findings)
    document = json.loads(json.dumps(to_contract(report)))
    assert {remark.id for remark in found.values() if remark.severity == "critical"} == {"training.replicas_differ"}
    first = document["verdict"]["check_first"]
    assert first.startswith("Check the result first: ") and "(training.replicas_differ); and 2 more" in first
    gated = [violation.key for violation in parse_gate("critical")(report)]
    assert gated[0] == "training.replicas_differ" and from_contract(document).training == report.training
    for screen in (render_text(report), render_markdown(report), render_summary(report)):
        words = screen.replace("\\", "")  # Markdown escapes
        assert all(name.split(".")[1] in words for name in places)
        assert 0 <= words.find("Check the result first: ") < words.find(phrases.bound_word(report))
    hidden = render_text(redacted(report, b"key"))
    assert "left_over" not in hidden and MISTAKEN.name not in hidden and "training.set_epoch" in hidden
