"""Starts capture in a process that has just imported torch; called by the shim's sitecustomize."""

from __future__ import annotations

import atexit
import functools
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import parent_process, util
from types import ModuleType
from typing import Any, NoReturn

from ddprof.capture.files.config import CaptureConfig
from ddprof.capture.hub import Hub
from ddprof.capture.import_hook import ImportHook
from ddprof.capture.instruments.base import Instrumentor
from ddprof.capture.instruments.checkpoint import DistributedCheckpoint, TorchSave
from ddprof.capture.instruments.communication.collectives import Collectives
from ddprof.capture.instruments.communication.comm_hooks import CommHooks
from ddprof.capture.instruments.cpu_waits import CpuContention
from ddprof.capture.instruments.creation import MAKERS, CreationLines
from ddprof.capture.instruments.dataloader import DataLoading
from ddprof.capture.instruments.evaluation import EvaluationMode
from ddprof.capture.instruments.forward import Backward, ForwardPasses, wrapper_forwards
from ddprof.capture.instruments.garbage import GarbageCollection
from ddprof.capture.instruments.gradients import GradientTimes
from ddprof.capture.instruments.optimizer import OptimizerSteps
from ddprof.capture.instruments.pipelines import MegatronSchedules, PipelineSchedules
from ddprof.capture.instruments.profilers import UserProfilers
from ddprof.capture.instruments.syncs import HostSyncs
from ddprof.capture.instruments.training.gradient_use import GradientUse
from ddprof.capture.instruments.training.replicas import Replicas
from ddprof.capture.instruments.workers import LoaderWorkers
from ddprof.capture.last_words import note_exit
from ddprof.capture.session import Session
from ddprof.capture.window.flight_recorder import enable_on_old_torch
from ddprof.capture.window.trace import warm_import

More = Callable[[Hub], list[Instrumentor]]
MIN_TORCH = (2, 4)
active: Session | None = None  # of this process, once torch has been imported: `ddprof.step()` looks here
_PRIORITY = 20  # before multiprocessing joins its own helper threads


def start(settings: str, torch: ModuleType, more: More | None = None) -> Session:
    """Install every instrumentor and `more` where `torch` was imported. Raises ValueError on bad settings."""
    global active
    session = active = Session(CaptureConfig.from_path(settings))
    begin = session.guard.wrap(_begin)
    begin(session, torch, more)
    return session


def _begin(session: Session, torch: ModuleType, more: More | None) -> None:
    version = tuple(int("".join(c for c in part if c.isdigit()) or 0) for part in torch.__version__.split(".")[:2])
    if version < MIN_TORCH:
        raise RuntimeError(f"torch {torch.__version__} is older than {MIN_TORCH[0]}.{MIN_TORCH[1]}")
    warm_import()
    note = enable_on_old_torch(version)
    if note:
        session.journal.note(note)
    hook = ImportHook()
    session.attach([*instrumentors(session), *(more(session) if more is not None else ())])
    for instrumentor in session.instrumentors:
        install = session.guard.wrap(instrumentor.install)
        if instrumentor.module == "torch":
            install(torch)  # its import has just ended, though its spec still says it is initializing
        else:
            hook.when_imported(instrumentor.module, install)
    follow_children(session)


def instrumentors(hub: Hub) -> list[Instrumentor]:
    """One instrumentor of each kind, in the order of installation."""
    forward = ForwardPasses(hub)
    return [
        UserProfilers(hub),
        DataLoading(hub),
        LoaderWorkers(hub),
        forward,
        Backward(hub),
        OptimizerSteps(hub),
        Collectives(hub),
        CommHooks(hub),
        GarbageCollection(hub),
        TorchSave(hub),
        EvaluationMode(hub),
        HostSyncs(hub),
        CpuContention(hub),
        GradientTimes(hub),
        GradientUse(hub),
        Replicas(hub),
        *(CreationLines(hub, *maker) for maker in MAKERS),
        *wrapper_forwards(forward),
        PipelineSchedules(hub),
        MegatronSchedules(hub),
        DistributedCheckpoint(hub),
    ]


def follow_children(session: Session) -> None:
    """Keep capture correct across fork, forkserver and spawn, and when a process ends abnormally.

    Forked children inherit the parent's hooks, and must either begin a capture of their own or do nothing. A child of
    multiprocessing leaves by `os._exit`, so `atexit` never runs there; finalizers of `multiprocessing.util` do
    (CPython: multiprocessing/popen_fork.py, process.py). A script that ends by `os._exit` itself, so as not to wait for
    threads that hang, or that `os.execv` replaces, loses neither its last step nor an open window.
    """
    # Where capture is off, too: a signal to the child would go on to the parent's watchdog, which ends the parent.
    os.register_at_fork(after_in_child=session.guard.shield(session.restart_in_child))
    if parent_process() is not None:  # started by spawn: this very process is a child of multiprocessing
        _flush_at_end(session)
    # Registered in the parent: a finalizer made inside register_at_fork would be wiped by multiprocessing's own start
    # of the child.
    util.register_after_fork(session, _flush_at_end)
    _flush_before_hard_exit(session)
    os.execv, os.execve = (
        _flushed_before(session, replace) for replace in (os.execv, os.execve)
    )  # the others call them
    atexit.register(_end_threads, session)


def _end_threads(session: Session) -> None:
    """End our threads before the interpreter exits, as their calls would then end the process by a signal. `finish`
    does not end them where it fails, or where this process is no rank.

    A signal waits meanwhile, as during the flush, since its handler would take locks that this thread holds.
    """
    with suppress(SystemExit), session.watchdog.flushing():  # of a handler: the script has ended already
        session.finish("exit")
        session.guard.attempt("requests", session.control.stop)
        session.guard.attempt("stacks", lambda: session.stacks.stop("exit"))
        session.guard.attempt("stacks of all threads", session.watchdog.last_resort.disarm)


def _flush_at_end(session: Session) -> None:
    util.Finalize(session, _finish_child, args=(session,), exitpriority=_PRIORITY)


def _finish_child(session: Session) -> None:
    """Flush while the exception that ends the child, if any, is under way: multiprocessing prints it after this."""
    error = sys.exc_info()[1]
    if error is not None and not isinstance(error, SystemExit):
        sys.last_value = error
    session.finish("exit")


def _flushed_before(session: Session, replace: Callable[..., NoReturn]) -> Callable[..., NoReturn]:
    @functools.wraps(replace)
    def replaced(path: Any, *rest: Any) -> NoReturn:
        if os.path.exists(path):  # else it raises, and the script goes on
            session.journal.note(f"the script replaced itself by {path}: of that nothing is recorded here")
            _end_threads(session)
        replace(path, *rest)

    return replaced


def _flush_before_hard_exit(session: Session) -> None:
    end_process = os._exit

    @functools.wraps(end_process)
    def _exit(status: int) -> NoReturn:
        if status:
            session.guard.attempt("the exit", lambda: note_exit(status, sys._getframe(3), "os._exit"))
        try:
            session.finish("exit" if threading.current_thread() is threading.main_thread() else "watchdog")
        finally:  # whatever a handler of a signal raises meanwhile
            end_process(status)

    os._exit = _exit
