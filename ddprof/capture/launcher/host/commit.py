"""The commit of the working directory, read from git's files: no process is started, and git need not be there."""

from __future__ import annotations

import re
from pathlib import Path

_HASH = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


def commit_of(folder: Path) -> str | None:
    """The commit that is checked out in the repository around a folder; None where there is none, or it is not plain.

    https://git-scm.com/docs/gitrepository-layout
    """
    for place in (folder, *folder.parents):
        git = place / ".git"
        if git.is_file():  # a worktree: "gitdir: PATH"
            git = place / _read(git).removeprefix("gitdir:").strip()
        if (git / "HEAD").is_file():
            return _commit(git)
    return None


def _commit(git: Path) -> str | None:
    head = _read(git / "HEAD").strip()
    if not head.startswith("ref:"):
        return head if _HASH.fullmatch(head) else None
    name = head.removeprefix("ref:").strip()
    shared = git / _read(git / "commondir").strip()  # of a worktree; else git itself
    for place in (git, shared):
        found = _read(place / name).strip()
        if _HASH.fullmatch(found):
            return found
    packed = (line.split() for line in _read(shared / "packed-refs").splitlines())
    return next((words[0] for words in packed if words[1:] == [name] and _HASH.fullmatch(words[0])), None)


def _read(file: Path) -> str:
    """The text of a file; "" where it cannot be read."""
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError):
        return ""
