"""Folders of the nodes of one job are one run, those of other jobs are not; a note stands under its own run alone."""

import json
import shutil
from pathlib import Path
from typing import Any

import kineto_text as kt
import pytest

from ddprof.analyzers.engine import Options, analyze, load_runs

S_NS = 10**9
PLAIN = Options(cache=False, workers=1)


def node(folder: Path, rank: int, **manifest: Any) -> str:
    """The folder of the node of one rank of two; with a manifest of ours where something is said of it."""
    folder.mkdir(parents=True)
    events = [kt.span(f"ProfilerStep#{step}", 10**6 * step, 900_000, "user_annotation") for step in range(3)]
    events += [kt.span("aten::mm", 10**6 * step + 10_000, 880_000) for step in range(3)]
    told = {"backend": "gloo", "rank": rank, "world_size": manifest.get("world_size", 2)}
    header = {"distributedInfo": told, "baseTimeNanoseconds": 100 * S_NS}
    kt.write(folder / f"rank{rank}.node{rank}.9.0.0.pt.trace.json", events, header=header)
    if manifest:
        stated = {"schema": "ddprof.run/1", "ranks": [rank], "world_size": 2, "started_ns": 100 * S_NS, **manifest}
        (folder / "manifest.json").write_text(json.dumps(stated))
    return str(folder)


@pytest.mark.parametrize(
    ("one", "other", "runs"),
    [
        ({}, {}, 1),  # traces alone state rank and world
        ({"job": "rdzv-7"}, {"job": "rdzv-7"}, 1),
        ({"job": ""}, {"job": "rdzv-7", "started_ns": 400 * S_NS}, 1),
        ({"job": "rdzv-7"}, {"job": "rdzv-8"}, 2),
        ({"job": ""}, {"job": "", "started_ns": 2000 * S_NS}, 2),  # another job on another node, later
        ({"job": "a"}, {"job": "a", "world_size": 4}, 2),
    ],
)
def test_parts_of_one_job_are_one_run(tmp_path: Path, one: dict[str, Any], other: dict[str, Any], runs: int) -> None:
    for given in ([node(tmp_path / "x", 0, **one), node(tmp_path / "y", 1, **other)], [str(tmp_path)]):
        reports = analyze(given, PLAIN)
        assert [report.run.ranks for report in reports] == ([(0, 1)] if runs == 1 else [(0,), (1,)])
        assert (reports[0].run.name == "x + y") is (runs == 1)


def test_parts_may_be_called_alike_one_asks_for_the_other_and_those_of_several_jobs_stay_apart(tmp_path: Path) -> None:
    (report,) = analyze([node(tmp_path / f"node{rank}" / "train", rank) for rank in (0, 1)], PLAIN)
    assert (report.run.ranks, report.run.name) == ((0, 1), "train")
    (report,) = analyze([node(tmp_path / "x", 0)], PLAIN)
    assert any("another folder, give both" in item.effect for item in report.health)
    reports = analyze([node(tmp_path / name, int(name[1]), job="") for name in ("a0", "a1", "b0", "b1")], PLAIN)
    assert len(reports) == 4
    assert any("may be parts of more than one job" in item.issue for item in reports[0].health)


@pytest.fixture
def runs(repo_root: Path, tmp_path: Path) -> Path:
    """Two runs, with a damaged trace beside one of them."""
    for name in ("first", "second"):
        shutil.copytree(repo_root / "sample_traces" / "late_loader" / "traces", tmp_path / name)
    (tmp_path / "second" / "broken.json").write_bytes(b"\xff\xfe\x00 no trace at all")
    return tmp_path


@pytest.mark.parametrize("given", [("first", "second"), ("second", "first"), (".",)])
def test_a_note_is_told_of_its_own_run(runs: Path, given: tuple[str, ...]) -> None:
    loaded = load_runs([str(runs / name) for name in given], PLAIN)
    told = {Path(run.job.ranks[0].path).parent.name: sum("broken.json" in n.issue for n in run.notes) for run in loaded}
    assert told == {"first": 0, "second": 1}


def test_a_note_above_all_runs_is_told_of_all(runs: Path) -> None:
    (runs / "broken_above.json").write_bytes(b"\xff\xfe\x00 no trace at all")
    loaded = load_runs([str(runs)], PLAIN)
    assert [sum("broken_above.json" in n.issue for n in run.notes) for run in loaded] == [1, 1]
