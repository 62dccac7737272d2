"""The summary of a run's sidecars, the last line that a job prints, and its commit."""

import json
from pathlib import Path

from damage import documents

from ddprof.capture.files.storage import write_json
from ddprof.capture.launcher import manifest
from ddprof.capture.launcher.manifest import commit_of
from ddprof.capture.launcher.summary import summarize


def test_time_outside_phases_is_taken_step_by_step(tmp_path: Path) -> None:
    phases = ("data_ns", "forward_ns", "backward_ns")
    steps = [
        {"start_ns": 100 * n, "end_ns": 100 * n + 30, **{name: 29 * (n % 3 == i) for i, name in enumerate(phases)}}
        for n in range(12)
    ]
    write_json(tmp_path / "rank0.h.7.0.sidecar.json", {"rank": 0, "host": "h", "steps": steps})
    times = summarize(tmp_path).step_times[0]
    assert (times["step_ns"], times["data_ns"], times["rest_ns"]) == (30, 0, 1)


def test_the_overhead_is_that_of_the_rank_where_it_is_largest(tmp_path: Path) -> None:
    for rank, (bare, profiled, own) in enumerate(((100, 150, 5), (200, 210, 2))):
        overhead = {"bare_step_ns": bare, "profiled_step_ns": profiled, "own_ns_per_step": own}
        write_json(tmp_path / f"rank{rank}.h.7.0.sidecar.json", {"rank": rank, "host": "h", "overhead": overhead})
    worst = summarize(tmp_path).overhead
    assert (worst["window_frac"], worst["own_frac"], worst["bare_step_ns"]) == (0.5, 0.05, 200)


def test_every_field_of_a_sidecar_may_be_damaged_and_none_says_how_many_ranks_there_are(tmp_path: Path) -> None:
    """A note names the file and the effect, and the rank is not missing: its file's name says who it is."""
    path, damaged = tmp_path / "rank0.h.7.0.sidecar.json", 0
    for content in documents():
        path.unlink(missing_ok=True)  # a file system may flush one that is cut to nothing: a second beside other work
        path.write_bytes(content)
        summary = summarize(tmp_path)
        assert (summary.ranks, summary.hosts) == ((0,), {0: "h"})
        json.dumps(summary.overhead | summary.step_times, allow_nan=False)
        if any(note.startswith(path.name) for note in summary.notes):
            damaged += 1
            assert "its steps, windows and overhead are not in this manifest (ranks 0)" in summary.notes[0]
    assert damaged > 100
    for rank, size in enumerate((4, 4, 4, 1 << 20, 1 << 21)):
        write_json(tmp_path / f"rank{rank}.h.7.0.sidecar.json", {"world_size": size})
    write_json(tmp_path / f"rank{1 << 40}.h.7.0.sidecar.json", {"world_size": 4})
    summary = summarize(tmp_path)
    assert (summary.world_size, summary.ranks) == (4, (0, 1, 2, 3, 4)) and len(summary.notes) == 1
    assert summary.notes[0].startswith("rank4.h.7.0.sidecar.json: damaged: ")


COMMIT = "0123456789abcdef0123456789abcdef01234567"


def test_a_job_too_short_for_its_window_is_told_so(tmp_path: Path) -> None:
    write_json(tmp_path / "rank0.h.7.0.sidecar.json", {"rank": 0, "host": "h", "world_size": 1, "steps_total": 4})
    summary = summarize(tmp_path)
    assert "the job ended after 4 steps, before step 5" in manifest.last_line(tmp_path, summary, 5)
    assert "0 traces of 1 rank in" in manifest.last_line(tmp_path, summary, None)
    assert "no trace: no rank wrote one (see --ranks" in manifest.last_line(tmp_path, summary, 2)


def test_the_commit_of_a_branch_of_a_packed_one_of_none_and_of_a_worktree(tmp_path: Path) -> None:
    git = tmp_path / ".git"
    (git / "refs" / "heads").mkdir(parents=True)
    (tmp_path / "scripts").mkdir()
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    assert commit_of(tmp_path) is None
    (git / "packed-refs").write_text(f"# pack-refs with: peeled\n{COMMIT} refs/heads/main\n")
    assert commit_of(tmp_path / "scripts") == COMMIT
    (git / "refs" / "heads" / "main").write_text("f" * 40 + "\n")
    assert commit_of(tmp_path) == "f" * 40
    (git / "HEAD").write_text(f"{COMMIT}\n")
    assert commit_of(tmp_path) == COMMIT
    own = git / "worktrees" / "w"
    own.mkdir(parents=True)
    (own / "HEAD").write_text("ref: refs/heads/w\n")
    (own / "commondir").write_text("../..\n")
    (git / "refs" / "heads" / "w").write_text(f"{COMMIT}\n")
    (tmp_path / "scripts" / ".git").write_text(f"gitdir: {own}\n")
    assert commit_of(tmp_path / "scripts") == COMMIT


def test_what_is_no_repository_has_none(tmp_path: Path) -> None:
    assert commit_of(tmp_path / "absent") is None or commit_of(tmp_path / "absent") == commit_of(tmp_path)
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_bytes(b"\xff\xfe\x00")
    assert commit_of(tmp_path) is None
