"""A signal arrives at the job once, whoever it was sent to."""

import os
import signal
import subprocess
import sys

import pytest

PROGRAM = """
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


@pytest.mark.parametrize("to_group", [True, False])
def test_a_signal_to_the_group_or_to_the_launcher_arrives_once(to_group: bool) -> None:
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        send = os.killpg if to_group else os.kill
        send(process.pid, signal.SIGINT)
        assert process.stdout.readline() == "1\n"
        send(process.pid, signal.SIGTERM)
        assert (process.stdout.read(), process.wait(60)) == ("2\n", 0)
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)  # the witness has gone with it
