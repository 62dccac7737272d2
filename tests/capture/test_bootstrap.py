"""End of processes: no thread of capture outlives the interpreter, whatever became of capture."""

import signal
import sys
from pathlib import Path

import pytest
from runs import bare_run

PROGRAM = """
import atexit, os, signal, sys, threading, types
from ddprof.capture.files.control import ControlReader
from ddprof.capture.guard import Guard
from ddprof.capture.bootstrap import follow_children
from ddprof.capture.signals import Watchdog
from ddprof.capture.stacks.sampler import StackSampler
from pathlib import Path

folder = Path(sys.argv[1])
guard = Guard()
nothing = lambda *_: None
tracker = types.SimpleNamespace(thread=threading.get_ident(), phase=5, index=9)
class Session: ...


session = Session()
session.guard, session.finish = guard, guard.wrap(nothing)
session.control = ControlReader(folder, nothing, nothing, nothing)
session.stacks = StackSampler(tracker, lambda: True, nothing, hz=1000)
session.clock = types.SimpleNamespace(stop=lambda: sys.argv[2] == "signal" and os.kill(os.getpid(), signal.SIGTERM))
session.watchdog = Watchdog(lambda _: print("flushed in the middle", flush=True))
session.watchdog.arm(folder / "threads.txt")
session.restart_in_child = session.watchdog.disarm_in_child
session.stacks.start(folder / "a.stacks.jsonl", {})
session.control.start()


def told() -> None:
    print([name for thread in threading.enumerate() if (name := thread.name) in ("ddprof-stacks", "ddprof-control")])


atexit.register(told)  # called last
follow_children(session)
guard.disable()
for number in range(200_000):
    str(number)
if sys.argv[2] == "fork":
    child = os.fork()
    if not child:
        os._exit(signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)
    print("detached" if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) else "the parent's")
"""


@pytest.mark.parametrize("native", ["1", "0"])
@pytest.mark.parametrize(("event", "code", "said"), [("none", 0, "[]\n"), ("signal", -signal.SIGTERM, "")])
def test_no_thread_is_left_where_capture_is_off(tmp_path: Path, native: str, event: str, code: int, said: str) -> None:
    """A signal that comes as they are ended waits until they are: its handler would wait for locks that are held."""
    done = bare_run([sys.executable, "-c", PROGRAM, str(tmp_path), event], DDPROF_NATIVE=native)
    assert (done.returncode, done.stdout, done.stderr) == (code, said, "")
    assert '"kind":"end"' in (tmp_path / "a.stacks.jsonl").read_text()


def test_a_signal_to_a_forked_child_is_the_childs_alone_where_capture_is_off(tmp_path: Path) -> None:
    done = bare_run([sys.executable, "-c", PROGRAM, str(tmp_path), "fork"])
    assert (done.returncode, done.stdout, done.stderr) == (0, "detached\n[]\n", "")
