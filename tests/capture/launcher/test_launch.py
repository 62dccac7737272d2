"""The job's exit code is the launcher's, whatever befalls the launcher while it waits."""

import os
import signal
import subprocess
import sys
import time

PROGRAM = """
import os, sys
from ddprof.capture.launcher.launch import run_child
print("started", flush=True)
sys.exit(run_child(["sh", "-c", "sleep 2; exit 7"], os.environ))
"""


def test_a_launcher_that_is_held_and_resumed_still_waits_for_its_job() -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        time.sleep(0.1)
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(1.0)  # longer than the launcher waits at a time
        os.kill(process.pid, signal.SIGCONT)
        assert (process.wait(300), process.stderr.read()) == (7, b"")
