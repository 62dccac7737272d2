"""Cases over processes that live on: one that hangs is ended and replaced, and its case is a failure too. A worker
runs a case in its process: plants the input, asks, judges."""

import faulthandler
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from fuzzing import judge, reports
from fuzzing.answers import Answer, Setting, ask, place_of_dump, watch_opens
from fuzzing.cases import JSON, Case
from fuzzing.counts import kept_events
from fuzzing.judge import Bounds, Failure, Sound
from fuzzing.seeds import least_events, seed
from fuzzing.tree import Unreadable, plant

BLOCKED_S = 120.0  # asleep for as long: it waits for what never comes. Less would judge the machine's load
GRACE_S = 1.0  # to write the stack of what hangs
_DUMP = "stack.txt"
FIRST = ("analyze {} --format json", "report {} -o out/r.html", "export {} -o out/t.json", "whatif {} --set compute=2")
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


def _failures(worker: "Worker", case: Case, bounds: Bounds) -> list[Failure]:
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
    return place_of_dump((worker.base / _DUMP).read_text())


class Worker:
    """One process's share of the work; each case gets a folder of its own below `base`."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self._sound = cache(self._sound_of)
        sys.addaudithook(watch_opens)

    def warm_up(self) -> None:
        """Import what commands import when they are first called, so that no case pays for it."""
        folder = self._new_folder("warm-up")
        plant(seed("on_devices"), folder)
        for line in FIRST:
            ask(line.format("run").split(), folder, Setting())
        shutil.rmtree(folder)

    def run(self, case: Case, bounds: Bounds) -> list[Failure]:
        """Failures of the answers to a case."""
        folder = self._new_folder(f"case-{case.number}")
        try:
            return self._run(case, folder, bounds)
        finally:
            _remove(folder)

    def _run(self, case: Case, folder: Path, bounds: Bounds) -> list[Failure]:
        vanishing = plant(case.tree, folder)
        if "{sound}" in " ".join(case.command):
            plant({f"sound/{name}": entry for name, entry in case.sound.items()}, folder)
        setting = Setting(vanishing, case.is_native, any(isinstance(entry, Unreadable) for entry in case.tree.values()))
        places = {"target": case.target, "out": "out", "sound": f"sound/{_target(case.seed)}"}
        arguments = [part.format(**places) for part in case.command]
        first = ask(arguments, folder, setting)
        found = list(judge.of_answer(first, case, folder, bounds))
        if case.again and first.error is None and not vanishing:
            if case.of_cache:
                _damage_cache(case, folder)
            second = ask(arguments, folder, setting)
            found += judge.of_answer(second, case, folder, bounds)
            found += judge.of_second(first, second)
        if case.is_kept and case.command == JSON and first.error is None:
            kept, least = sum(kept_events(folder / case.target, case.is_native).values()), least_events(case.seed)
            if kept < least:
                found.append(Failure("greedy drop", "", f"{kept} events kept, at least {least} are sound"))
        is_comparable = case.command == JSON and not case.of_cache and not case.is_kept
        if is_comparable and first.error is None and not found and not vanishing:
            found += self._against_the_seed(first, case, folder)
        return list(dict.fromkeys(found))

    def _against_the_seed(self, answer: Answer, case: Case, folder: Path) -> list[Failure]:
        sound = self._sound(case.seed, case.is_native)
        found = list(judge.of_recording(answer, case, sound))
        if any(case.tree.get(path) not in (case.sound[path], None) for path in sound.kept) and answer.code == 0:
            kept = _below(folder, kept_events(folder / case.target, case.is_native))
            found += judge.of_counts(answer, case, kept, sound)
        return found

    def _sound_of(self, name: str, is_native: bool) -> Sound:
        """Result of the unchanged seed. Raises RuntimeError where that fails, as its cases cannot be judged then."""
        folder = self._new_folder(f"sound-{name}")
        plant(seed(name), folder)
        answer = ask([part.format(target=_target(name)) for part in JSON], folder, Setting(is_native=is_native))
        kept = _below(folder, kept_events(folder / "run", is_native))
        shutil.rmtree(folder)
        if answer.error is not None:
            raise RuntimeError(f"the seed {name} itself fails: {answer.error}")
        return Sound(reports.parsed(answer.stdout) if answer.code == 0 else None, kept)

    def _new_folder(self, name: str) -> Path:
        folder = self._base / name
        _remove(folder)
        folder.mkdir()
        return folder


def _below(folder: Path, kept: dict[str, int]) -> dict[str, int]:
    """By paths in the tree."""
    return {str(Path(path).relative_to(folder)): count for path, count in kept.items()}


def _target(seed_name: str) -> str:
    return "run/report.json" if seed_name == "saved" else "run"


def _damage_cache(case: Case, folder: Path) -> None:
    below = {path.relative_to(folder): path for path in sorted(folder.rglob("*")) if path.is_file()}
    if kept := {str(name): path.read_bytes() for name, path in below.items() if "cache" in name.parts}:
        plant(case.damage_cache(kept), folder)


def _remove(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)
