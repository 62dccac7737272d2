"""Cases over processes that live on: one that hangs is ended and replaced, and its case is a failure too."""

import faulthandler
import os
import shutil
import signal
import tempfile
import time
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from fuzzing import places
from fuzzing.cases import Case
from fuzzing.judge import Bounds, Failure
from fuzzing.worker import Worker

BLOCKED_S = 120.0  # asleep for as long: it waits for what never comes. Less would judge the machine's load
GRACE_S = 1.0  # to write the stack of what hangs
_DUMP = "stack.txt"
CASES_EACH = 400  # then a process is replaced: memory that is lost in one case does not add up


@dataclass
class _Running:
    process: BaseProcess
    pipe: Connection
    base: Path
    case: Case | None = None
    done: int = 0
    cpu_before_s: float = 0.0
    cpu_s: float = 0.0  # when last looked at
    awake: float = 0.0  # when it last ran
    looked: float = 0.0  # when that was last looked at


class Pool:
    """`processes` workers below one temporary folder."""

    def __init__(self, processes: int, bounds: Bounds) -> None:
        self._bounds = bounds
        self._folder = Path(tempfile.mkdtemp(prefix="ddprof-fuzz-"))
        self._folder.chmod(0o755)
        self._context = get_context("fork")
        self._count = 0
        self._workers = [self._start() for _ in range(processes)]

    def close(self) -> None:
        for worker in self._workers:
            self._end(worker)
        shutil.rmtree(self._folder, ignore_errors=True)

    def run(self, cases: Iterable[Case]) -> Iterator[tuple[Case, list[Failure]]]:
        """Failures of each case, in the order in which they end."""
        waiting = iter(cases)
        for worker in self._workers:
            self._next(worker, waiting)
        while any(worker.case for worker in self._workers):
            ready = wait([worker.pipe for worker in self._workers if worker.case], timeout=1.0)
            for at, worker in enumerate(self._workers):
                if worker.case is None:
                    continue
                case, failures = worker.case, None
                if worker.pipe in ready:
                    failures = self._received(worker)
                elif words := _hangs(worker, self._bounds):
                    failures = [Failure("hang", _place(worker), words)]
                if failures is None:
                    continue
                yield case, failures
                worker.case = None
                is_spent = worker.done >= CASES_EACH or not worker.process.is_alive()
                if is_spent or any(failure.kind in ("hang", "died") for failure in failures):
                    self._end(worker)
                    worker = self._workers[at] = self._start()
                self._next(worker, waiting)

    def _received(self, worker: _Running) -> list[Failure]:
        try:
            return worker.pipe.recv()
        except (EOFError, ConnectionResetError):
            worker.process.join(5)
            return [Failure("died", "", f"exit code {worker.process.exitcode}")]

    def _next(self, worker: _Running, waiting: Iterator[Case]) -> None:
        case = next(waiting, None)
        if case is not None:
            worker.case, worker.done = case, worker.done + 1
            worker.awake = worker.looked = time.monotonic()
            worker.cpu_before_s = worker.cpu_s = _state(worker)[1]
            worker.pipe.send(case.name)

    def _end(self, worker: _Running) -> None:
        worker.process.kill()
        worker.process.join()
        worker.pipe.close()
        shutil.rmtree(worker.base, ignore_errors=True)

    def _start(self) -> _Running:
        self._count += 1
        base = self._folder / f"worker-{self._count}"
        base.mkdir()
        mine, theirs = self._context.Pipe()
        process = self._context.Process(target=_work, args=(theirs, base, self._bounds))
        process.start()
        theirs.close()
        return _Running(process, mine, base)


def _work(pipe: Connection, base: Path, bounds: Bounds) -> None:
    os.setpgid(0, 0)
    with (base / _DUMP).open("w") as sink:
        faulthandler.register(signal.SIGUSR1, file=sink, all_threads=False)
        worker = Worker(base)
        worker.warm_up()
        while True:
            try:
                case = Case.named(pipe.recv())
            except EOFError:
                return
            pipe.send(_failures(worker, case, bounds))


def _failures(worker: Worker, case: Case, bounds: Bounds) -> list[Failure]:
    try:
        return worker.run(case, bounds)
    except Exception as error:  # of the harness itself: said, with its place, and the work goes on
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(last.filename).name}:{last.name}"
        return [Failure("harness", place, f"{type(error).__name__}: {error}")]


def _hangs(worker: _Running, bounds: Bounds) -> str:
    """Why a case must be ended now, in words; empty while it may go on."""
    state, cpu_s = _state(worker)
    now = time.monotonic()
    if cpu_s > worker.cpu_s or state in "RTD" or now - worker.looked > BLOCKED_S:  # all of us may have been stopped
        worker.cpu_s, worker.awake = cpu_s, now
    worker.looked = now
    if cpu_s - worker.cpu_before_s > 1.5 * bounds.cpu_s:
        return f"still running after {cpu_s - worker.cpu_before_s:.0f} s of CPU time"
    return f"waits for ever ({BLOCKED_S:.0f} s)" if now - worker.awake > BLOCKED_S else ""


def _state(worker: _Running) -> tuple[str, float]:
    """State of a process, running ("R") or sleeping, and its CPU time in seconds."""
    try:
        fields = Path(f"/proc/{worker.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return "Z", 0.0
    return fields[0], (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _place(worker: _Running) -> str:
    """Place of the hang: the process writes its stack on a signal, even out of C."""
    assert worker.process.pid is not None
    os.kill(worker.process.pid, signal.SIGUSR1)
    time.sleep(GRACE_S)
    return places.of_dump((worker.base / _DUMP).read_text())
