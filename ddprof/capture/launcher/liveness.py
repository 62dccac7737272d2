"""Whether the writer of a file still runs: its process id is in the file's name."""

from __future__ import annotations

import os


def runs_here(pid: int) -> bool:
    """Whether a process of this host has the id `pid`, whoever's it is."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
