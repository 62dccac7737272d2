"""Foundations of capture: guard, identity, import hook, journal, a session without a job, and the end."""

import functools
import gc
import importlib
import signal
import sys
import weakref
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, create_autospec

import pytest
from runs import bare_run

from ddprof.capture.files.config import CaptureConfig
from ddprof.capture.files.layout import SIDECAR_SUFFIX
from ddprof.capture.files.storage import read_object
from ddprof.capture.guard import Guard
from ddprof.capture.identity import RankIdentity, identify
from ddprof.capture.import_hook import ImportHook
from ddprof.capture.journal import Journal
from ddprof.capture.session import Session


def test_a_failure_costs_one_line_and_the_capture_interrupts_pass(capsys: pytest.CaptureFixture[str]) -> None:
    guard, work = Guard(), create_autospec(lambda: None, side_effect=KeyError("broken"))
    guarded = guard.wrap(work)
    assert guarded() is None and guarded() is None
    assert (work.call_count, len(guard.faults), guard.enabled) == (1, 1, False)
    assert capsys.readouterr().err.count("\n") == 1

    with pytest.raises(KeyboardInterrupt):
        Guard().wrap(Mock(side_effect=KeyboardInterrupt))()
    guard = Guard()
    hook = guard.wrap_hook(lambda first, second: first / (second or 1))
    assert hook(6) == 6 and hook(6, 3) == 2 and hook("x", 1) is None and hook(6, 3) is None
    assert len(guard.faults) == 1
    assert capsys.readouterr().err.count("capture is off") == 1


class Preempted(Exception):
    pass


class Leaving:
    """A signal's handler as a script may have it."""

    def handle(self, *_: object) -> None:
        raise Preempted

    __call__ = handle


@pytest.mark.parametrize("handler", [Leaving().handle, Leaving(), functools.partial(Leaving().handle, 1)])
def test_what_the_scripts_handler_raises_inside_our_code_reaches_the_script(handler: Any) -> None:
    guard, before = Guard(), signal.signal(signal.SIGUSR1, handler)
    ways = [guard.wrap(signal.raise_signal), guard.wrap_hook(lambda number, _: signal.raise_signal(number))]
    ways += [guard.shield(signal.raise_signal), lambda number: guard.attempt("", lambda: signal.raise_signal(number))]
    try:
        for timed in (False, True):
            guard.time_hooks(timed)
            for way in ways:
                with pytest.raises(Preempted):
                    way(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert guard.enabled and guard.faults == []


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}, (3, 8, 1)),
        ({"HOROVOD_RANK": "1", "HOROVOD_SIZE": "2", "RANK": "0", "WORLD_SIZE": "1"}, (1, 2, None)),
        ({"OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "6"}, (5, 6, None)),
        ({"SLURM_PROCID": "2", "SLURM_NTASKS": "4", "SLURM_LOCALID": "0"}, (2, 4, 0)),
        ({}, (0, 1, None)),
    ],
)
def test_rank_of_the_environment(variables: dict[str, str], expected: object, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setitem(sys.modules, "torch.distributed", SimpleNamespace(is_available=lambda: False))
    found = identify()
    assert (found.rank, found.world_size, found.local_rank) == expected


def test_import_hook_calls_back_after_the_import_and_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hooked_module_x.py").write_text("value = 41\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    before = list(sys.meta_path)
    seen: list[int] = []
    ImportHook().when_imported("hooked_module_x", lambda module: seen.append(module.value + 1))
    assert seen == []
    module = importlib.import_module("hooked_module_x")
    assert seen == [42]
    assert sys.meta_path == before
    assert module.__spec__ is not None and "exec_module" not in vars(module.__spec__.loader)
    ImportHook().when_imported("hooked_module_x", lambda module: seen.append(module.value))
    assert seen == [42, 41]


def test_batches_of_traced_steps_outlive_later_ones_and_count_once() -> None:
    """The window is early in a job; only its steps are compared between ranks."""
    journal = Journal()
    for step in range(5_000):
        journal.batch_fetched(step, 64, 640)
        journal.batch_fetched(step, 64, 640)
        if step == 9:
            journal.window_closed({"first_step": 5, "last_step": 9})
    kept = journal.batches()
    assert kept[:5] == [{"step": step, "batches": 2, "samples": 128, "elements": 1280} for step in range(5, 10)]
    assert kept[-1]["step"] == 4_999 and len(kept) < 1_000 and len({row["step"] for row in kept}) == len(kept)
    journal = Journal()
    journal.batch_fetched(0, 64, 640)
    journal.window_closed({"first_step": 0, "last_step": 0})
    journal.batch_fetched(0, 64, 640)
    assert journal.batches() == [{"step": 0, "batches": 2, "samples": 128, "elements": 1280}]


class Optimizer:
    """An optimizer as far as it is read."""

    param_groups: tuple[object, ...] = ()


@pytest.fixture
def session(tmp_path: Path) -> Session:
    """The session of a rank that nothing has happened to yet."""
    made = Session(CaptureConfig(run_dir=str(tmp_path)))
    made.identity = RankIdentity(0, 1, 0, "h", 7, 0, "single", None)
    return made


def test_a_fault_closes_the_window_and_is_kept_in_the_sidecar(session: Session) -> None:
    profiler = SimpleNamespace(stop=Mock(), profiler=None)
    session.window._profiler = profiler
    broken = SimpleNamespace(window_closed=Mock(side_effect=KeyError("broken")))
    session._listeners = Mock(window_closed=[broken.window_closed])
    session.guard.wrap(lambda: 1 / 0)()
    assert profiler.stop.call_count == 1 and not session.window.is_open and not session.guard.enabled
    session.finish("exit")
    written = read_object(session.path(SIDECAR_SUFFIX))
    assert written["state"] == "exit" and len(written["windows"]) == 1
    assert any("ZeroDivisionError" in note for note in written["notes"])
    assert "end of a trace window: KeyError: 'broken'" in written["notes"]


class Fetch(list[int]):
    """One as whose fields are read another thread fetches."""

    def __init__(self, fetches: deque[list[int]]) -> None:
        super().__init__(range(5))
        self.fetches = fetches

    def __iter__(self) -> Iterator[int]:
        self.fetches.append([0] * 5)
        return super().__iter__()


def test_a_sidecar_is_written_while_another_thread_fetches(session: Session) -> None:
    session.journal.fetches.append(Fetch(session.journal.fetches))
    session.write_sidecar("running")
    assert len(read_object(session.path(SIDECAR_SUFFIX))["fetches"]) == 1


def test_an_optimizer_is_not_taken_for_one_that_was_freed_and_had_its_id(session: Session) -> None:
    freed, trains = Optimizer(), Optimizer()
    session.observed.optimizers[id(trains)] = weakref.ref(freed)
    del freed
    session.optimizer_stepped(trains)
    assert session.observed.living_optimizers() == [trains]


def test_an_optimizer_that_the_script_lets_go_of_is_said_once(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone: list[int] = []
    monkeypatch.setattr(session, "optimizer_died", gone.append)
    kept, dropped = Optimizer(), Optimizer()
    for optimizer in (kept, dropped, dropped):
        session.optimizer_stepped(optimizer)
    number = id(dropped)
    del dropped, optimizer
    gc.collect()
    assert gone == [number] and session.observed.living_optimizers() == [kept]


PROGRAM = """
import atexit, os, signal, sys, threading, types
from ddprof.capture.files.control import ControlReader
from ddprof.capture.guard import Guard
from ddprof.capture.bootstrap import follow_children
from ddprof.capture.signals import Watchdog
from ddprof.capture.stacks.sampler import StackSampler
from pathlib import Path
folder, guard, nothing = Path(sys.argv[1]), Guard(), lambda *_: None
tracker = types.SimpleNamespace(thread=threading.get_ident(), phase=5, index=9)
session = type("Session", (), {})()
session.guard, session.finish = guard, guard.wrap(nothing)
session.control = ControlReader(folder, nothing, nothing, nothing)
session.stacks = StackSampler(tracker, lambda: True, nothing, hz=1000)
if sys.argv[2] == "exit": signal.signal(signal.SIGTERM, lambda *_: (print("left"), sys.exit(4)))
session.watchdog = Watchdog(lambda _: print("flushed in the middle", flush=True))
session.watchdog.arm(folder / "threads.txt")
session.restart_in_child = session.watchdog.disarm_in_child
session.stacks.start(folder / "a.stacks.jsonl", {})
session.control.start()
stop = session.control.stop
session.control.stop = lambda: (stop(), sys.argv[2] in ("signal", "exit") and os.kill(os.getpid(), 15))
def told() -> None:
    print([name for thread in threading.enumerate() if (name := thread.name) in ("ddprof-stacks", "ddprof-control")])
atexit.register(told)  # called last
follow_children(session)
guard.disable()
for number in range(200_000): str(number)
if sys.argv[2] == "fork":
    if not (child := os.fork()):
        os._exit(signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)
    print("detached" if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) else "the parent's")
"""


@pytest.mark.parametrize("native", ["1", "0"])
@pytest.mark.parametrize(
    ("event", "code", "said"), [("none", 0, "[]\n"), ("signal", -15, ""), ("exit", 0, "left\n[]\n")]
)
def test_no_thread_is_left_where_capture_is_off(tmp_path: Path, native: str, event: str, code: int, said: str) -> None:
    """A signal that comes as they are ended waits until they are: its handler would wait for locks, or leave."""
    done = bare_run([sys.executable, "-c", PROGRAM, str(tmp_path), event], DDPROF_NATIVE=native)
    assert (done.returncode, done.stdout, done.stderr) == (code, said, "")
    assert '"kind":"end"' in (tmp_path / "a.stacks.jsonl").read_text()


def test_a_signal_to_a_forked_child_is_the_childs_alone_where_capture_is_off(tmp_path: Path) -> None:
    done = bare_run([sys.executable, "-c", PROGRAM, str(tmp_path), "fork"])
    assert (done.returncode, done.stdout, done.stderr) == (0, "detached\n[]\n", "")
