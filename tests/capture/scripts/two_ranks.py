"""Starts a script as the two ranks of a job, as torchrun does, but without importing torch once more.

The first rank that fails ends the other one; the exit code is 1 then, as torchrun's.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
shared = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
ranks = [
    subprocess.Popen(
        [sys.executable, *sys.argv[1:]], env={**os.environ, **shared, "RANK": str(r), "LOCAL_RANK": str(r)}
    )
    for r in (0, 1)
]
while any(rank.poll() is None for rank in ranks) and not any(rank.poll() for rank in ranks):
    time.sleep(0.02)
failed = any(rank.poll() for rank in ranks)
for rank in ranks:
    if failed:
        rank.terminate()
    rank.wait()
sys.exit(int(failed))
