"""Recordings of the scripts by `ddprof run`, several processes at once that take turns on the device."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any

JOBS = Path(__file__).with_name("jobs")
PORT = 29411  # of the first job of two ranks; each has its own
TRIAL_S, SPARE_S = 60, 30  # of the trial of NCCL; and of a run that began in time


def record(out: Path, names: Sequence[str], seconds: float, wide: int) -> None:
    """Record into OUT/NAME and write OUT/times.json after each; no run begins after so many seconds."""
    out.mkdir(parents=True, exist_ok=True)
    until, backend, lock = time.monotonic() + seconds, _backend(), Lock()
    times: dict[str, Any] = {"backend": backend, "runs": {}}

    def one(number: int) -> None:
        if time.monotonic() > until:
            return
        name = names[number]
        ddprof = [sys.executable, "-m", "ddprof.cli.main", "run", "--skip", "8", "--steps", "4", "--run-dir"]
        begun, left = time.monotonic(), until + SPARE_S - time.monotonic()
        environment = {"BACKEND": backend, "GPU_TURN": str(out / "turn.lock")}
        code, said = _call([*ddprof, str(out / name), "--", *_job(name, PORT + 1 + number)], name, environment, left)
        took = re.search(r"STEP_MS ([\d.]+)", said)
        run = {"ms": float(took[1]) if took else None, "rc": code, "s": time.monotonic() - begun}
        with lock:
            times["runs"][name] = {**run, "tail": said[-1500:] if code else ""}
            print(name, run["ms"], code, said[-300:] if code else "", flush=True)
            (out / "times.json").write_text(json.dumps(times, indent=1) + "\n")

    with ThreadPoolExecutor(wide) as pool:
        list(pool.map(one, range(len(names))))


def _backend() -> str:
    """Backend of the jobs of two ranks: nccl where they can meet on one device by it (`jobs/pair.py`), else gloo."""
    code, _ = _call(_job("pair-late-0", PORT), "pair-late-0", {"BACKEND": "nccl", "STEPS": "2"}, TRIAL_S)
    return "gloo" if code else "nccl"


def _job(name: str, port: int) -> list[str]:
    script = name.split("-")[0]
    launch = ["-m", "torch.distributed.run", "--nproc-per-node=2", f"--master-port={port}"] if script == "pair" else []
    return [sys.executable, *launch, str(JOBS / f"{script}.py")]


def _call(command: list[str], name: str, more: Mapping[str, str], limit_s: float) -> tuple[int, str]:
    """Exit code and output of a command for a run of this name; 1 where it took too long."""
    _, *mode, fault = name.split("-")
    environment = {**os.environ, "OMP_NUM_THREADS": "2", "MODE": "".join(mode), "FAULT": fault, **more}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=max(20.0, limit_s), env=environment
        )
    except subprocess.TimeoutExpired:
        return 1, "timeout"
    return done.returncode, done.stdout + done.stderr
