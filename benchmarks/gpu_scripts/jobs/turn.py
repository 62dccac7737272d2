"""Turns on the one device and the script's own clock: the recorder's, no part of the job.

Every script has its fault where FAULT=1 is set, and runs STEPS steps; without a GPU it is a small one on the CPU.
"""

import fcntl
import os
import time

import torch

FAULT = os.environ.get("FAULT") == "1"
STEPS = int(os.environ.get("STEPS", "62"))
WARM = 30  # steps before the clock starts: warm-up and ddprof's trace window lie there
RANK = int(os.environ.get("RANK", "0"))


class Turn:
    """Device while it is this job's. GPU_TURN: the file whose lock is the turn; none: the device is free."""

    def __init__(self):
        path = os.environ.get("GPU_TURN")
        self.lock = open(path, "w") if path and RANK == 0 else None  # noqa: SIM115, closed by end()
        if self.lock:
            fcntl.flock(self.lock, fcntl.LOCK_EX)
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.steps, self.since = 0, time.perf_counter()

    def sync(self):
        if self.device == "cuda":
            torch.cuda.synchronize()

    def step(self):
        if self.steps == WARM:
            self.sync()
            self.since = time.perf_counter()
        self.steps += 1

    def end(self):
        self.sync()
        if RANK == 0:
            print("STEP_MS", 1e3 * (time.perf_counter() - self.since) / max(1, self.steps - WARM))
        if self.lock:
            self.lock.close()
