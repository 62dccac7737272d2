"""Forked children: they inherit the parent's hooks, and must either begin a capture of their own or do nothing.

A child of multiprocessing leaves by `os._exit`, so `atexit` never runs there; finalizers of `multiprocessing.util` do
(CPython: multiprocessing/popen_fork.py, process.py).
"""

from __future__ import annotations

import os
from multiprocessing import parent_process, util
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddprof.capture.session import Session

_PRIORITY = 20  # before multiprocessing joins its own helper threads


def follow_children(session: Session) -> None:
    """Make capture correct across fork, forkserver and spawn."""
    os.register_at_fork(after_in_child=session.guard.wrap(session.restart_in_child))
    if parent_process() is not None:  # started by spawn: this very process is a child of multiprocessing
        _flush_at_end(session)
    # Registered in the parent: a finalizer made inside register_at_fork would be wiped by multiprocessing's own start
    # of the child.
    util.register_after_fork(session, _flush_at_end)


def _flush_at_end(session: Session) -> None:
    util.Finalize(session, session.finish, args=("exit",), exitpriority=_PRIORITY)
