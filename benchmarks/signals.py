"""Sends signals to jobs, bare and under `ddprof run` and `ddprof tune`, and compares how they end.

    python benchmarks/signals.py [--signals SIGTERM none] [--to launcher group rank] [--modes trace] [--times 10]

A case is a signal, where it is sent (to the command that was started; to its process group; to rank 1; from its
terminal, by a key or as that is closed), and what the script does about it: nothing, a handler that calls `sys.exit`,
or one that saves and goes on; or, without a signal, how rank 1 ends by itself. SIGINT+SIGINT is two of them, AGAIN_S
apart. Each is run bare, and in every mode of MODES; exit code, what each rank's handler wrote, and the
processes that are left must be those of the bare run, and it may not end LATE_S later. A tuning runs the job many times
and says of itself how it ended: of it only nothing may be left. The ranks collect garbage all the time: a signal that
comes meanwhile is handled inside a callback. The case "restart" has rank 1 fail once under `--max-restarts=1`:
restarted ranks meet over gloo by chance, and bare jobs hang there in 2 of 8 runs (torch 2.13), so that it is to be
counted. Cases come in an order that --seed chooses; those that the log has already are not run again. Exits with 1
where a run ends otherwise than bare.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pty
import random
import signal
import subprocess
import sys
import tempfile
import termios
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parent.parent
SIGNALS = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGKILL", "SIGINT+SIGINT", "none")
PLACES = ("launcher", "group", "rank", "terminal")
KEYS = {"SIGINT": b"\x03", "SIGQUIT": b"\x1c", "SIGHUP": b""}  # typed for a signal; b"": the terminal is closed
HANDLERS = ("none", "exit", "save")
ENDINGS = ("ends", "code", "raises", "os._exit", "crashes", "restart")
MODES = {
    "trace": ("run", "--mode", "trace"),
    "monitor": ("run", "--mode", "monitor"),
    "apply": ("run", "--set", "fused=false"),
    "tune": ("tune", "--yes", "--no-record", "--budget", "20s"),
}
AGAIN_S = 0.1
LATE_S = 15.0  # torchrun kills ranks that do not end after 30
TIMEOUT_S = 180
SCRIPT = """
import os, signal, sys
import torch, torch.distributed as dist
place, how, number, rank = sys.argv[1], sys.argv[2], sys.argv[3], os.environ["RANK"]

def handled(got, frame):
    with open(f"{place}/handled.{rank}", "a") as out:
        out.write(f"{got}\\n")
    if how == "exit":
        sys.exit(4)
    if how == "save":
        globals()["left"] = 3

left = 1_000_000
if how in ("exit", "save"):
    signal.signal(getattr(signal, number), handled)
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(16, 16))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
step = 0
while left:
    model(torch.randn(8, 16)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    kept = [[at] for at in range(3000)]
    kept.append(kept)
    step, left = step + 1, left - 1
    if step == 4:
        open(f"{place}/ready.{rank}.{os.getpid()}", "w").close()
    if step == 6 and rank == "1":
        if how == "code":
            sys.exit(3)
        if how == "raises":
            raise ValueError("planted")
        if how == "os._exit":
            os._exit(5)
        if how == "crashes":
            os.kill(os.getpid(), signal.SIGSEGV)
    if how == "ends" and step == 6:
        left = 0
    if how == "restart" and step == 6:
        if rank == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            raise SystemExit(9)
        left = 3 if os.environ["TORCHELASTIC_RESTART_COUNT"] == "1" else left
"""


def end_of(mode: tuple[str, ...] | None, name: str, to: str, how: str, after_s: float) -> dict[str, Any]:
    """End of a job: bare where `mode` is None."""
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "job.py").write_text(SCRIPT)
        command = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node=2",
            "--max-restarts",
        ]
        command += ["1" if how == "restart" else "0", f"{place}/job.py", place, how, name.partition("+")[0]]
        if mode is not None:
            command = [sys.executable, "-m", "ddprof", *mode, "--out", f"{place}/runs", "--", *command]
        job, terminal = _started(command, Path(place))
        ranks = _ready(Path(place), job)
        began = time.monotonic()
        if name != "none":
            time.sleep(after_s)
            for again, sent in enumerate(name.split("+")):
                time.sleep(AGAIN_S if again else 0)
                with suppress(ProcessLookupError):
                    _send(sent, to, job.pid, ranks["1"], terminal)
        try:
            code: int | str = job.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            code = "did not end"
        took_s = time.monotonic() - began
        left = [
            rank for rank, pid in sorted(ranks.items()) if Path(f"/proc/{pid}/stat").exists() and not _is_zombie(pid)
        ]
        if code == "did not end":
            job.terminate()  # torchrun ends its ranks, which are of other sessions
            job.wait(TIMEOUT_S)
        for pid in [job.pid, *(ranks[rank] for rank in left)]:  # what a killed launcher leaves behind, its group too
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        with suppress(OSError):
            os.close(terminal)
        handled = {path.name[-1]: path.read_text().split() for path in sorted(Path(place).glob("handled.*"))}
        restarts = len(list(Path(place).glob("ready.1.*")))
        # Python ends by a signal's number, a shell and we by 128 + that: both mean the same to who started the job.
        code = 128 - code if isinstance(code, int) and code < 0 else code
        return {"code": code, "handled": handled, "left": left, "starts": restarts, "s": round(took_s, 1)}


def _started(command: list[str], place: Path) -> tuple[subprocess.Popen[bytes], int]:
    """A job that leads a session with a terminal, and our end of that."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with open(place / "said", "w", encoding="utf-8") as said:
        job = subprocess.Popen(
            command,
            cwd=REPO,
            env=environment,
            stdin=theirs,
            stdout=said,
            stderr=said,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
    os.close(theirs)
    return job, ours


def _send(name: str, to: str, job: int, rank: int, terminal: int) -> None:
    number = getattr(signal, name)
    if to == "group":
        os.killpg(job, number)
    elif to != "terminal":
        os.kill(job if to == "launcher" else rank, number)
    elif KEYS[name]:
        os.write(terminal, KEYS[name])
    else:
        os.close(terminal)


def _ready(place: Path, job: subprocess.Popen[bytes]) -> dict[str, int]:
    """Process of each rank, once both train."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline and job.poll() is None:
        ranks = {path.name.split(".")[1]: int(path.suffix[1:]) for path in place.glob("ready.*")}
        if len(ranks) == 2:
            return ranks
        time.sleep(0.05)
    raise SystemExit(f"the job did not train: {(place / 'said').read_text()[-2000:]}")


def _is_zombie(pid: int) -> bool:
    return ") Z" in Path(f"/proc/{pid}/stat").read_text()


def main() -> int:
    """Run every case so many times and say which end otherwise than bare."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--signals", nargs="+", default=SIGNALS)
    parser.add_argument("--to", nargs="+", default=PLACES)
    parser.add_argument("--modes", nargs="+", default=list(MODES))
    parser.add_argument("--handlers", type=int, default=len(HANDLERS), help="of each signal and place, drawn by --seed")
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log", type=Path, default=Path("signals.jsonl"))
    options = parser.parse_args()
    known = [json.loads(line) for line in options.log.read_text().splitlines()] if options.log.exists() else []
    chooser = random.Random(options.seed)
    sent = [(name, to) for name, to in product(options.signals, options.to) if name != "none"]
    cases = [(*case, how) for case in sent for how in _handlers(case[0], options.handlers, chooser)]
    cases = [case for case in cases if case[1] != "terminal" or KEYS.keys() >= set(case[0].split("+"))]
    cases += [("none", "none", how) for how in ENDINGS if "none" in options.signals]
    cases = [(*case, number) for case, number in product(cases, range(options.times))]
    chooser.shuffle(cases)
    for case in cases:
        after_s, bare = chooser.uniform(0, 1.5), None
        for mode in options.modes:
            if any((line["case"], line["mode"]) == (list(case), mode) for line in known):
                continue
            bare = bare or end_of(None, *case[:3], after_s)
            ours = end_of(MODES[mode], *case[:3], after_s)
            line = {"case": case, "mode": mode, "same": _is_same(mode, case[0], bare, ours), "bare": bare, "ours": ours}
            known.append(line)
            with options.log.open("a", encoding="utf-8") as log:
                log.write(json.dumps(line) + "\n")
            if not line["same"]:
                print(json.dumps(line), flush=True)
    count = Counter("same" if line["same"] else "other" for line in known)
    print(json.dumps(dict(count)))
    return int(bool(count["other"]))


def _handlers(name: str, count: int, chooser: random.Random) -> Sequence[str]:
    return ("none",) if name == "SIGKILL" else chooser.sample(HANDLERS, count)


def _is_same(mode: str, name: str, bare: dict[str, Any], ours: dict[str, Any]) -> bool:
    if mode == "tune":
        return ours["left"] == bare["left"] and ours["code"] != "did not end"
    is_late = ours["s"] > bare["s"] + LATE_S
    # Whom torchrun has signalled when a second one cuts it short is chance, bare too.
    keys = ("code", "left", "starts") if "+" in name else ("code", "handled", "left", "starts")
    return not is_late and all(ours[key] == bare[key] for key in keys)


if __name__ == "__main__":
    sys.exit(main())
