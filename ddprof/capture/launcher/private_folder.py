"""A folder of this user alone below the temporary folder that all users share.

Its name is the same for all processes of the user on this host, so that the tasks of one job find each other in it. Any
user can make a folder of that name first: one that is not safely ours is refused, and a fresh one taken.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path

_MODE = 0o700


def private_folder() -> tuple[Path, str | None]:
    """`$TMPDIR/ddprof-<user id>`, or a fresh folder and why that one was refused. Raises OSError."""
    path = Path(tempfile.gettempdir()) / f"ddprof-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=_MODE)
    defect = _defect(path.lstat())
    if defect is None:
        return path, None
    return Path(tempfile.mkdtemp(prefix="ddprof-")), f"{path} is not used ({defect})"


def _defect(status: os.stat_result) -> str | None:
    """Why a folder cannot be relied upon; of a link, never of what it leads to."""
    if stat.S_ISLNK(status.st_mode):
        return "it is a link"
    if not stat.S_ISDIR(status.st_mode):
        return "it is no folder"
    if status.st_uid != os.getuid():
        return f"it belongs to user {status.st_uid}"
    if stat.S_IMODE(status.st_mode) & ~_MODE:
        return f"its mode is {stat.S_IMODE(status.st_mode):o}: others may enter it"
    return None
