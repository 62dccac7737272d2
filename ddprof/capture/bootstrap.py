"""Starts capture in a process that has just imported torch. Called by the shim's sitecustomize."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING

from ddprof.capture.files.config import CaptureConfig
from ddprof.capture.import_hook import ImportHook
from ddprof.capture.instruments.backward import Backward
from ddprof.capture.instruments.base import Instrumentor
from ddprof.capture.instruments.checkpoint import DistributedCheckpoint, TorchSave
from ddprof.capture.instruments.communication.collectives import Collectives
from ddprof.capture.instruments.communication.comm_hooks import CommHooks
from ddprof.capture.instruments.cpu_waits import CpuContention
from ddprof.capture.instruments.dataloader import DataLoading
from ddprof.capture.instruments.evaluation import EvaluationMode
from ddprof.capture.instruments.forward import ForwardPasses, wrapper_forwards
from ddprof.capture.instruments.garbage import GarbageCollection
from ddprof.capture.instruments.gradients import GradientTimes
from ddprof.capture.instruments.objects.creation import creation_lines
from ddprof.capture.instruments.optimizer import OptimizerSteps
from ddprof.capture.instruments.pipelines import PipelineSchedules
from ddprof.capture.instruments.profilers import UserProfilers
from ddprof.capture.instruments.syncs import HostSyncs
from ddprof.capture.instruments.training.gradient_use import GradientUse
from ddprof.capture.instruments.training.replicas import Replicas
from ddprof.capture.instruments.workers import LoaderWorkers
from ddprof.capture.processes import follow_children
from ddprof.capture.session import Session
from ddprof.capture.window.flight_recorder import enable_on_old_torch
from ddprof.capture.window.trace import warm_import

if TYPE_CHECKING:
    from ddprof.capture.hub import Hub

More = Callable[["Hub"], list[Instrumentor]]
MIN_TORCH = (2, 4)
active: Session | None = None  # of this process, once torch has been imported: `ddprof.step()` looks here


def start(settings: str, torch: ModuleType, more: More | None = None) -> Session:
    """Install every instrumentor in a process that has imported `torch`, `more` besides. Raises ValueError on damaged
    settings."""
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
    """One of each, in the order of installation."""
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
        *creation_lines(hub),
        *wrapper_forwards(forward),
        PipelineSchedules(hub),
        DistributedCheckpoint(hub),
    ]
