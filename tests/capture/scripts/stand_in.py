"""Writes into the run folder what a rank writes, without torch and the seconds of its import: step ring, sidecar,
NCCL's log; looks for requests. Ends with 7, or with 99 where a guarded part of that failed."""

import os
import sys
import time
from contextlib import suppress
from pathlib import Path

from ddprof.capture.describe import nccl_log
from ddprof.capture.files.config import CaptureConfig
from ddprof.capture.files.control import ControlReader
from ddprof.capture.files.layout import host_label, rank_stem
from ddprof.capture.files.ring import StepRing
from ddprof.capture.files.step import Step
from ddprof.capture.files.storage import write_json
from ddprof.capture.guard import Guard

settings = CaptureConfig.from_path(os.environ["DDPROF_SHIM"].partition("/settings/")[2])
guard = Guard()
folder = Path(settings.run_dir)
stem = rank_stem(0, host_label(), os.getpid(), 0)
who = {"rank": 0, "world_size": 1, "host": host_label()}
ring = StepRing(folder / f"{stem}.ring", {**who, "started_ns": time.time_ns()})
log = nccl_log.ask(folder, {})
nothing = guard.wrap(lambda *_: None)
control = ControlReader(folder, nothing, nothing, nothing)
control.start()
steps: list[Step] = []
for number in range(int(sys.argv[1])):
    start_ns = time.time_ns()
    time.sleep(0.02)
    steps.append(Step(number, start_ns, time.time_ns(), 1000, 2000, 3000, 4000, 5000, 0, 0, 0, 0, 0, False))
    ring.write(steps[-1])
    control.take()
    if number % 10 == 0:
        with suppress(OSError):
            nccl_log.read(log)
            told = {"schema": "ddprof.run/1", "state": "running", **who, "steps": [step.record() for step in steps]}
            write_json(folder / f"{stem}.sidecar.json", told)
control.stop()
sys.exit(99 if guard.faults else 7)
