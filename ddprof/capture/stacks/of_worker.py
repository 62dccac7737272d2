"""Samples of a DataLoader worker's main thread, in a file of its own beside that of its rank."""

from __future__ import annotations

import os
from collections.abc import Callable
from multiprocessing import util
from pathlib import Path

from ddprof.capture.files.layout import STACKS_SUFFIX
from ddprof.capture.files.step import REST
from ddprof.capture.stacks.rate import WORKER_HZ
from ddprof.capture.stacks.sampler import StackSampler
from ddprof.capture.stacks.totals import STEADY_STEP

MAX_FILES = 64  # per rank: a loader that is made again for every epoch starts new workers each time
_PRIORITY = 20  # before multiprocessing joins its own helper threads


class _OneThread:
    """A process that trains nothing: its main thread is the one of interest."""

    thread, phase, index = 0, REST, STEADY_STEP  # it has no steps, and no start-up that is unlike the rest


def sample_worker(
    stem: Path, worker: int, active: Callable[[], bool], note: Callable[[str], object]
) -> StackSampler | None:
    """Begin in this process, which is `worker` of the rank whose files begin with `stem`. None where there are enough
    files of workers. Raises OSError."""
    if len(list(stem.parent.glob(f"{stem.name}.worker*{STACKS_SUFFIX}"))) >= MAX_FILES:
        return None
    sampler = StackSampler(_OneThread(), active, note, WORKER_HZ, with_source=True)
    path = stem.with_name(f"{stem.name}.worker{worker}.{os.getpid()}{STACKS_SUFFIX}")
    sampler.start(path, {"worker": worker, "pid": os.getpid()})
    util.Finalize(None, sampler.stop, args=("exit",), exitpriority=_PRIORITY)  # workers leave by os._exit
    return sampler
