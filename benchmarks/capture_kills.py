"""Kills ranks of captured jobs at random and checks what is left.

    python benchmarks/capture_kills.py [--trials 200] [--seed 1] [--output benchmarks/results/capture_kills.json]

Each trial starts two ranks under `ddprof run`, sends a random signal (SIGTERM, SIGKILL, SIGSEGV, SIGINT,
SIGHUP) to a random rank at a random moment, and asserts: the exit code is the one torchrun gives without
ddprof, every JSON and gzip file of the run folder can be read, the victim's steps are there up to the step
before its death, and so is what was sampled of its stacks, in whole lines.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parent.parent
SCRIPT = REPO / "tests" / "capture" / "scripts" / "victim.py"
SIGNALS = (signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV, signal.SIGINT, signal.SIGHUP)
EXIT_CODE = 1  # torchrun's, whatever killed a rank
TIMEOUT_S = 120


def trial(out: Path, chooser: random.Random) -> dict[str, Any]:
    """One kill. The result says what went wrong, in `defects`."""
    number, rank, after_s = chooser.choice(SIGNALS), chooser.randrange(2), chooser.uniform(0.0, 4.0)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", str(SCRIPT)]
    options = ["--out", str(out), "--name", "kill", "--skip", "3", "--steps", "5", "--every", "10"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    job = subprocess.Popen(
        [sys.executable, "-m", "ddprof.cli.run", *options, "--", *torchrun],
        cwd=REPO,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert job.stdout is not None
    lines: list[str] = []
    pids: dict[int, int] = {}
    for line in job.stdout:
        lines.append(line)
        found = re.match(r"rank (\d) pid (\d+)", line)
        if found:
            pids[int(found[1])] = int(found[2])
        if len(pids) == 2:
            break
    time.sleep(after_s)
    os.kill(pids[rank], number)
    lines.extend(job.communicate(timeout=TIMEOUT_S)[0].splitlines(keepends=True))
    folder = (out / "latest").resolve()
    defects = check(folder, rank, _last_step("".join(lines), rank))
    if job.returncode != EXIT_CODE:
        defects.append(f"exit code {job.returncode}")
    return {
        "signal": number.name,
        "rank": rank,
        "after_s": round(after_s, 3),
        "defects": defects,
        "folder": folder.name,
    }


def _last_step(output: str, rank: int) -> int:
    steps = [int(step) for step in re.findall(rf"rank {rank} step (\d+)\n", output)]
    return max(steps, default=-1)


def check(folder: Path, rank: int, last_step: int) -> list[str]:
    """Defects of a run folder."""
    defects = []
    for path in folder.iterdir():
        if path.suffix in (".json", ".gz"):
            try:
                json.loads(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes())
            except (OSError, ValueError, EOFError) as error:
                defects.append(f"{path.name}: {error}")
        elif path.suffix in (".tmp", ".ring"):
            defects.append(f"{path.name} was left behind")
    for number in (0, 1):
        defects += check_stacks(folder, number, last_step if number == rank else -1)
    sidecars = list(folder.glob(f"rank{rank}.*.sidecar.json"))
    steps = [step["index"] for path in sidecars for step in json.loads(path.read_text())["steps"]]
    if last_step > 0 and max(steps, default=-1) < last_step - 1:
        defects.append(f"rank {rank} printed step {last_step}, its sidecar ends at {max(steps, default=-1)}")
    return defects


SAMPLED_STEP = 150  # of 20 ms each: by then counts of the first seconds have been written


def check_stacks(folder: Path, rank: int, last_step: int) -> list[str]:
    """Defects of the side file of a rank's stacks."""
    paths = list(folder.glob(f"rank{rank}.*.stacks.jsonl"))
    if not paths:
        return [f"rank {rank}: no stacks"] if last_step > 0 else []
    *lines, last = paths[0].read_bytes().split(b"\n")
    defects = [f"{paths[0].name}: half a line"] if last else []
    kinds = set()
    for line in lines:
        try:
            kinds.add(json.loads(line)["kind"])
        except (ValueError, KeyError) as error:
            defects.append(f"{paths[0].name}: {error}")
    if last_step > SAMPLED_STEP and "counts" not in kinds:
        defects.append(f"{paths[0].name}: no counts after {last_step} steps")
    return defects


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    chooser = random.Random(options.seed)
    results = []
    with tempfile.TemporaryDirectory() as out:
        for index in range(options.trials):
            result = trial(Path(out), chooser)
            results.append(result)
            print(index, json.dumps(result), flush=True)
    bad = [result for result in results if result["defects"]]
    summary = {"trials": len(results), "seed": options.seed, "with_defects": len(bad), "defects": bad}
    print(json.dumps(summary, indent=1))
    if options.output:
        options.output.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
