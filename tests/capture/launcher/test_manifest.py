"""The last line that a job prints."""

from pathlib import Path

from ddprof.capture.files.storage import write_json
from ddprof.capture.launcher import manifest
from ddprof.capture.launcher.manifest import commit_of
from ddprof.capture.launcher.summary import summarize

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
