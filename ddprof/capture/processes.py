"""How processes begin and end besides the usual way.

Forked children inherit the parent's hooks, and must either begin a capture of their own or do nothing. A child of
multiprocessing leaves by `os._exit`, so `atexit` never runs there; finalizers of `multiprocessing.util` do (CPython:
multiprocessing/popen_fork.py, process.py). A script that ends by `os._exit` itself, so as not to wait for threads that
hang, loses neither its last step nor an open window.
"""

from __future__ import annotations

import atexit
import functools
import os
import threading
from multiprocessing import parent_process, util
from typing import TYPE_CHECKING, NoReturn

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
    _flush_before_hard_exit(session)
    atexit.register(_end_threads, session)


def _end_threads(session: Session) -> None:
    """No thread of ours may be left when the interpreter goes: what it calls then ends the process by a signal. Where
    capture is off, `finish` ends none.

    A signal that comes meanwhile waits, as during the flush: its handler would take locks that this thread holds.
    """
    session.finish("exit")
    with session.watchdog.flushing():
        session.guard.attempt("requests", session.control.stop)
        session.guard.attempt("stacks", lambda: session.stacks.stop("exit"))
        session.guard.attempt("clock", session.clock.stop)
        session.guard.attempt("stacks of all threads", session.watchdog.last_resort.disarm)


def _flush_at_end(session: Session) -> None:
    util.Finalize(session, session.finish, args=("exit",), exitpriority=_PRIORITY)


def _flush_before_hard_exit(session: Session) -> None:
    end_process = os._exit

    @functools.wraps(end_process)
    def _exit(status: int) -> NoReturn:
        session.finish("exit" if threading.current_thread() is threading.main_thread() else "watchdog")
        end_process(status)

    os._exit = _exit
