"""Damages files of a run folder while the job that writes them runs, and checks that the job never notices.

    python benchmarks/capture_damage.py [--trials 100] [--job torch] [--seed 1] [--output RESULTS.json]

Each trial starts a rank under `ddprof run` and, at a random moment, replaces some of its files (sidecar, step ring,
manifest, request, counters, trace, flight recorder) by damaged ones: cut, scribbled, nonsense, nested deeply, a FIFO, a
folder, a link, a device, nothing at all. It asserts: the exit code is the job's, nobody prints a traceback,
`ddprof status` answers meanwhile, and all ends in time.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO / "tests" / "capture"))

from damage import DAMAGES  # noqa: E402

SCRIPTS = REPO / "tests" / "capture" / "scripts"
JOBS = {  # both end with EXIT_CODE where all went well
    "stand-in": f"exec {sys.executable} {SCRIPTS / 'stand_in.py'} 80",
    "torch": f"{sys.executable} {SCRIPTS / 'loop.py'} --steps 40 --sleep 0.03 && exit 7; exit 99",
}
EXIT_CODE = 7
TARGETS = (
    *(".sidecar.json", ".ring", "manifest.json", "control.json", ".counters.jsonl", ".pt.trace.json.gz", ".fr.json"),
    *(".workers.jsonl", ".sidecar.json.1.tmp", "manifest.other.1.json"),
)
STATUS_CODES = (0, 4)  # 4: no rank runs, as far as the rings tell
TIMEOUT_S = 90


def trial(out: Path, chooser: random.Random, job_name: str) -> dict[str, Any]:
    """One job. The result says what went wrong, in `defects`."""
    options = ["--out", str(out), "--name", "damage", "--mode", chooser.choice(("monitor", "trace")), "--skip", "3"]
    alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "OMP_NUM_THREADS": "1"}
    job = subprocess.Popen(
        [sys.executable, "-m", "ddprof.cli.run", *options, "--every", "9", "--", "sh", "-c", JOBS[job_name]],
        cwd=REPO,
        env={**os.environ, **alone},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    deadline = time.monotonic() + TIMEOUT_S
    while not list(out.glob("latest/*.ring")) and time.monotonic() < deadline and job.poll() is None:
        time.sleep(0.05)
    damaged = []
    for _ in range(chooser.randint(1, 4)):
        time.sleep(chooser.uniform(0, 0.8))
        damaged.append(damage_one((out / "latest").resolve(), chooser, job_name == "torch"))
    status = _status(out / "latest")
    defects = [] if status.returncode in STATUS_CODES else [f"ddprof status returned {status.returncode}"]
    try:
        output = job.communicate(timeout=TIMEOUT_S)[0]
    except subprocess.TimeoutExpired:
        job.kill()
        output = job.communicate()[0]
        defects.append("the job did not end")
    if job.returncode != EXIT_CODE:
        defects.append(f"exit code {job.returncode}")
    if "Traceback" in output + status.stderr or "internal error" in status.stderr:
        defects.append(f"traceback: {output[-2000:]} {status.stderr[-2000:]}")
    said = [line for line in output.splitlines() if line.startswith("ddprof: ")]
    return {"damaged": damaged, "said": said, "defects": defects}


def _status(folder: Path) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "ddprof.cli.main", "status", "--once", str(folder)]
    return subprocess.run(line, cwd=REPO, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def damage_one(folder: Path, chooser: random.Random, in_place: bool) -> str:
    """Damage one file, or put something damaged in its place; says what.

    `in_place` False: never the file itself, because the stand-in's ring in Python does not survive being cut.
    """
    target, kind = chooser.choice(TARGETS), chooser.choice(list(DAMAGES))
    missing = folder / (f"rank0.h.1.0{target}" if target.startswith(".") else target)
    path = min(folder.glob(f"*{target}"), default=missing)
    if in_place and path.is_file() and chooser.random() < 0.5:
        DAMAGES[kind](path)
        return f"{path.name}: {kind}, in place"
    with tempfile.TemporaryDirectory(dir=folder.parent) as aside:
        copy = Path(aside) / path.name
        try:
            shutil.copyfile(path, copy)
            path.unlink()
        except OSError:
            copy.write_text('{"id": 1}')
        DAMAGES[kind](copy)
        if os.path.lexists(copy) and not os.path.lexists(path):
            copy.rename(path)
    return f"{path.name}: {kind}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--job", choices=JOBS, default="stand-in", help="what trains: torch, or what writes like it")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    chooser = random.Random(options.seed)
    results = []
    for index in range(options.trials):
        with tempfile.TemporaryDirectory() as out:
            results.append(trial(Path(out), chooser, options.job))
        print(index, json.dumps(results[-1]), flush=True)
    bad = [result for result in results if result["defects"]]
    summary = {
        "trials": len(results),
        "seed": options.seed,
        "job": options.job,
        "with_defects": len(bad),
        "defects": bad,
    }
    print(json.dumps(summary, indent=1))
    if options.output:
        options.output.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
