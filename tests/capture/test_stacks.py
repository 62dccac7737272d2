"""Stacks of real jobs: the slow line of the script is the one that was sampled most."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from runs import SCRIPTS, Captured, ddprof_run, ranks_of

from ddprof.capture.files.step import REST
from ddprof.capture.stacks.totals import START_UP

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
        for stack, phase, thread, _, ns, _ in line.get("counts", []):
            while stack >= 0 and frames[stacks[stack][1]][0] != str(SCRIPT):
                stack = stacks[stack][0]
            if stack >= 0 and thread == 0 and phase != START_UP:
                _, function, number = frames[stacks[stack][1]]
                found[phase, number, function] += ns
    return found


def files(run: Captured, rank: int) -> list[Path]:
    """Of the rank itself."""
    return [path for path in run.folder.glob(f"rank{rank}.*.stacks.jsonl") if ".worker" not in path.name]


@pytest.mark.parametrize(
    ("place", "native"),
    [("evaluation", "1"), ("evaluation", "0"), ("python", "1")],
    ids=["a sleep", "a sleep, sampled in Python", "a loop in Python"],
)
def test_the_slow_line_of_one_rank_is_named(tmp_path: Path, place: str, native: str) -> None:
    options = ("--place", place, "--steps", "60")
    function = "evaluate" if place == "evaluation" else "count"
    lines = {planted_line(place), planted_line(place) - (place == "python")}  # the head of the loop, too
    shares: list[float] = []  # where other work holds the CPUs, samples cost more and the sampler takes few of them
    while len(shares) < 3 and max(shares, default=0.0) < 0.3:
        run = ddprof_run(tmp_path / str(len(shares)), ranks_of("planted.py", *options), DDPROF_NATIVE=native)
        assert run.code == 0, run.output
        late, peer = (seen(path) for rank in (0, 1) for path in files(run, rank))
        mine = sum(ns for (phase, number, name), ns in late.items() if phase == REST and number in lines)
        shares.append(mine / sum(late.values()))
    assert max(shares) >= 0.3, (shares, late)
    assert not any(name == function for _, _, name in peer), peer
    for sidecar in run.sidecars:
        assert sidecar["stacks"]["samples"] > 0
        assert sidecar["stacks"]["collector"] == ("native" if native == "1" else "thread")
        assert sidecar["overhead"]["stacks_frac"] > 0
    assert run.manifest["overhead"]["stacks_frac"] > 0


def test_a_lock_of_loader_workers_is_named(tmp_path: Path) -> None:
    run = ddprof_run(tmp_path, ranks_of("planted.py", "--place", "lock", "--steps", "25"))
    assert run.code == 0, run.output
    workers = sorted(run.folder.glob("rank0.*.worker*.stacks.jsonl"))
    assert len(workers) == 2
    found: Counter[tuple[int, int, str]] = Counter()
    for path in workers:
        begin = json.loads(path.read_text().splitlines()[0])
        assert begin["worker"] in (0, 1)
        found.update(seen(path))
    (_, line, function), _ = found.most_common(1)[0]
    assert function.endswith("__getitem__")
    assert planted_line("lock") <= line <= planted_line("lock") + 1
    assert any("with self.lock:" in path.read_text() for path in workers)  # the text of its lines


def test_no_stacks_means_none(tmp_path: Path) -> None:
    run = ddprof_run(tmp_path, ranks_of("planted.py", "--steps", "8"), "--no-stacks")
    assert run.code == 0, run.output
    assert not list(run.folder.glob("*.stacks.jsonl"))
    assert run.manifest["options"]["stacks"] is False
    assert all(sidecar["stacks"] is None for sidecar in run.sidecars)
    assert run.manifest["overhead"]["stacks_frac"] is None
