"""Side files of stacks: what they hold, and what is left of damaged ones."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ddprof.readers.side_files import stacks
from ddprof.readers.side_files.stacks import SampledProcess, read_stacks, stacks_paths

LINES: list[dict[str, Any]] = [
    {"kind": "begin", "phases": ["data", "rest"], "path": ["/job"]},
    {"kind": "frames", "from": 0, "frames": [["", "...", 0], ["/job/train.py", "main", 9]]},
    {"kind": "stacks", "from": 0, "stacks": [[-1, 0], [-1, 1]]},
    {"kind": "threads", "from": 0, "threads": [["MainThread", 77], ["feeds", None]]},
    {"kind": "counts", "counts": [[1, 1, 0, 5, 500, 0], [1, 0, 1, 2, 200, 7]], "cpu_ns": [[0, 9]]},
    {"kind": "samples", "at_ns": 1000, "period_ns": 10, "samples": [[20, 10, 0, 0, 1, 1], [5, 10, 3, 0, 1, 1]]},
    {"kind": "frames", "from": 2, "frames": [["/job/train.py", "evaluate", 20]]},
    {"kind": "stacks", "from": 2, "stacks": [[1, 2]]},
    {"kind": "counts", "counts": [[2, 1, 0, 1, 100, 0]]},
    *({"kind": "last", "threads": [[0, 2]]}, {"kind": "end", "reason": "exit"}),
]


def read_all(path: Path, lines: list[Any]) -> tuple[list[SampledProcess], list[str]]:
    """Processes of a file of these lines, and the notes on it."""
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    processes, notes = read_stacks([str(path)])
    return processes, [note.issue.removeprefix(f"{path}: ") for note in notes]


def read_one(folder: Path, lines: list[Any]) -> tuple[SampledProcess, list[str]]:
    (process,), notes = read_all(folder / "a.stacks.jsonl", lines)
    return process, notes


def test_all_that_is_written_is_read(tmp_path: Path) -> None:
    process, notes = read_one(tmp_path, LINES)
    assert notes == []
    assert process.frames[2] == ("/job/train.py", "evaluate", 20) and process.stacks == [(-1, 0), (-1, 1), (1, 2)]
    assert process.threads == [("MainThread", 77), ("feeds", None)] and process.phases == ["data", "rest"]
    assert process.counts.tolist() == [[1, 1, 0, 5, 500, 0], [1, 0, 1, 2, 200, 7], [2, 1, 0, 1, 100, 0]]
    assert process.samples.tolist() == [[1005, 3, 1, 10], [1020, 0, 1, 10]]
    # CPython gives -1 as the line of some instructions, of a comprehension for example: that costs no frame.
    frames = {"kind": "frames", "from": 0, "frames": [["", "...", 0], ["/job/train.py", "main", -1]]}
    process, notes = read_one(tmp_path, [LINES[0], frames, *LINES[2:]])
    assert notes == [] and process.frames[1] == ("/job/train.py", "main", 0)


# A dear sample on a busy machine: nine of them in a second, then one that stands for five.
DEAR = ([[1, 1, 0, 9, 900, 0], [2, 1, 0, 1, 5000, 0], [1, 0, 1, 2, 200, 7]], [9 * 590, 590, 200])
# A late answer: the thread was in that call until it answered.
LATE = ([[1, 1, 0, 9, 900, 0], [2, 1, 0, 1, 5100, 5000]], [900, 5100])


@pytest.mark.parametrize(("counts", "times_ns"), [DEAR, LATE], ids=["dear", "late"])
def test_a_sample_after_a_pause_outweighs_no_other_unless_it_was_late(tmp_path: Path, counts, times_ns) -> None:
    process, _ = read_one(tmp_path, [*LINES[:4], *LINES[6:8], {"kind": "counts", "counts": counts}])
    assert process.counts[:, 4].tolist() == times_ns


def test_windows_and_the_start_are_sampled_at_rates_of_their_own(tmp_path: Path) -> None:
    begin = {"kind": "begin", "phases": ["data", "rest", "start-up"], "path": ["/job"]}
    of_window = {"kind": "counts", "from_ns": 1000, "to_ns": 1100, "counts": [[1, 1, 0, 2, 20, 0]]}
    outside = {"kind": "counts", "from_ns": 1100, "to_ns": 9000, "counts": [[1, 1, 0, 3, 300, 0], [2, 2, 0, 1, 900, 0]]}
    process, _ = read_one(tmp_path, [begin, *LINES[1:4], *LINES[5:8], of_window, outside])
    assert process.counts[:, 4].tolist() == [20, 300, 900]


@pytest.mark.parametrize("lost", range(len(LINES)))
def test_a_lost_line_costs_no_more_than_it_says(tmp_path: Path, lost: int) -> None:
    process, notes = read_one(tmp_path, [*LINES[:lost], '{"kind":"cou', *LINES[lost + 1 :]])
    assert notes[0] == "1 unreadable lines"
    assert len(process.counts) >= 1 or lost == 4
    assert set(process.counts[:, 0].tolist()) <= set(range(len(process.stacks)))
    assert all(outer < at for at, (outer, _) in enumerate(process.stacks))


ODD_LINES = (
    {"kind": "stacks", "from": 3, "stacks": [[3, 1], [9, 1], [1, 99]]},
    {"kind": "counts", "counts": [[99, 0, 0, 1, 1, 0]]},
    {"kind": "samples", "at_ns": 1, "period_ns": 1, "samples": [[1, 1, 0, 0, 0, 99]]},
    # Values of the wrong kind cost their line.
    *({"kind": "counts", "counts": [row]} for row in ([-1, 0, 0, 1, 1, 0], [1, 0, 0, 1, 1 << 60, 0])),
    {"kind": "samples", "at_ns": float("nan"), "period_ns": 1, "samples": []},
    {"kind": "frames", "from": -5, "frames": [["a", "b", 1]]},
    *({"kind": "frames", "from": 0, "frames": {"a": 1}}, {"kind": "what"}, [], "\x00\xff"),
)


@pytest.mark.parametrize("line", ODD_LINES)
def test_what_names_nothing_or_is_of_the_wrong_kind_is_noted(tmp_path: Path, line: Any) -> None:
    process, (note,) = read_one(tmp_path, [*LINES, line])
    assert note == "1 unreadable lines" or (line in ODD_LINES[:3] and "name stacks that are not in it" in note)
    assert len(process.counts) == 3 and len(process.samples) == 2


def test_a_file_that_is_none_or_claims_too_much_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe")
    processes, (note,) = read_stacks([str(tmp_path / "pipe")])
    assert processes == [] and "not a regular file" in note.issue
    far = {"kind": "frames", "from": 1 << 30, "frames": [["a", "b", 1]]}
    for lines, said in (([*LINES, far], "more than 131072 entries"), (LINES, "more than 2 rows")):
        processes, (issue,) = read_all(tmp_path / "a.stacks.jsonl", lines)
        assert processes == [] and said in issue
        monkeypatch.setattr(stacks, "MAX_ROWS", 2)


def test_only_the_bounded_start_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "MAX_BYTES", len(json.dumps(LINES[0])) + 5)
    _, notes = read_one(tmp_path, LINES)
    assert notes == ["1 unreadable lines", "only its first 0 MiB are read"]


def test_files_of_a_rank_and_of_its_workers_are_found(tmp_path: Path) -> None:
    stem = tmp_path / "rank0.h[1].1.0"
    names = [f"{stem}.stacks.jsonl", f"{stem}.worker0.5.stacks.jsonl", f"{stem}.worker1.6.stacks.jsonl"]
    for name in (*names, f"{tmp_path}/rank1.h.2.0.stacks.jsonl"):
        Path(name).touch()
    assert stacks_paths(f"{stem}.sidecar.json") == names
    assert stacks_paths(f"{tmp_path}/rank9.h.1.0.sidecar.json") == [] == stacks_paths(None)
