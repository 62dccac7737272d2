"""The job's exit code is the launcher's, whatever befalls the launcher while it waits, and a signal arrives at the job
once, whoever it was sent to.
"""

import os
import signal
import subprocess
import sys
import time

import pytest

HELD = """
import os, sys
from ddprof.capture.launcher.launch import run_child
print("started", flush=True)
sys.exit(run_child(["sh", "-c", "sleep 2; exit 7"], os.environ))
"""
SIGNALLED = """
import os, sys
from ddprof.capture.launcher.launch import run_child
child = '''
import signal, time
ended = []
signal.signal(signal.SIGINT, lambda *_: print(1, flush=True))
signal.signal(signal.SIGTERM, lambda *_: (print(2, flush=True), ended.append(time.monotonic())))
print("ready", flush=True)
while not ended or time.monotonic() < ended[0] + 0.3:  # one that comes twice comes within milliseconds
    time.sleep(0.01)
'''
sys.exit(run_child([sys.executable, "-c", child], os.environ))
"""


def test_a_launcher_that_is_held_and_resumed_still_waits_for_its_job() -> None:
    with subprocess.Popen([sys.executable, "-c", HELD], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        time.sleep(0.1)
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(1.0)  # longer than the launcher waits at a time
        os.kill(process.pid, signal.SIGCONT)
        assert (process.wait(300), process.stderr.read()) == (7, b"")


@pytest.mark.parametrize("to_group", [True, False])
def test_a_signal_to_the_group_or_to_the_launcher_arrives_once(to_group: bool) -> None:
    command = [sys.executable, "-c", SIGNALLED]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        send = os.killpg if to_group else os.kill
        send(process.pid, signal.SIGINT)
        assert process.stdout.readline() == "1\n"
        send(process.pid, signal.SIGTERM)
        assert (process.stdout.read(), process.wait(60)) == ("2\n", 0)
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)  # the witness has gone with it
