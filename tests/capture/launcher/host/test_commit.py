"""The commit of a repository as its files have it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddprof.capture.launcher.host.commit import commit_of

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / ".git" / "refs" / "heads").mkdir(parents=True)
    (tmp_path / "scripts").mkdir()
    return tmp_path


def test_a_branch_a_packed_branch_and_no_branch(repository: Path) -> None:
    git = repository / ".git"
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    assert commit_of(repository) is None
    (git / "packed-refs").write_text(f"# pack-refs with: peeled\n{COMMIT} refs/heads/main\n")
    assert commit_of(repository / "scripts") == COMMIT
    (git / "refs" / "heads" / "main").write_text("f" * 40 + "\n")
    assert commit_of(repository) == "f" * 40
    (git / "HEAD").write_text(f"{COMMIT}\n")
    assert commit_of(repository) == COMMIT


def test_a_worktree_has_its_branches_in_the_repository(repository: Path, tmp_path: Path) -> None:
    own = repository / ".git" / "worktrees" / "w"
    own.mkdir(parents=True)
    (own / "HEAD").write_text("ref: refs/heads/w\n")
    (own / "commondir").write_text("../..\n")
    (repository / ".git" / "refs" / "heads" / "w").write_text(f"{COMMIT}\n")
    (repository / "scripts" / ".git").write_text(f"gitdir: {own}\n")
    assert commit_of(repository / "scripts") == COMMIT


def test_what_is_no_repository_has_none(tmp_path: Path) -> None:
    assert commit_of(tmp_path / "absent") is None or commit_of(tmp_path / "absent") == commit_of(tmp_path)
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_bytes(b"\xff\xfe\x00")
    assert commit_of(tmp_path) is None
