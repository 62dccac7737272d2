"""A folder of `ddprof tune`, written without a run of anything."""

import json
import shlex
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from ddprof.report.model import Calibration
from ddprof.settings.fixes_file import write_fixes
from ddprof.trials.document import (
    KEEP,
    MeasuredGain,
    Memory,
    Predicted,
    Results,
    RunPlan,
    Trial,
    TrialCandidate,
    Tried,
    TuneOptions,
    TuneState,
    TuningAnswer,
    Untried,
    write_document,
)
from tests.dashboard.made import generate

COMMAND = ("torchrun", "--nproc-per-node=2", "acme_train.py", "--name", "two words")
CWD, PLACE = "/home/somebody/project", "acme_train.py:7"
GIB = 2**30
HUNK = "@@ -1 +1 @@\n-model = DDP(net)\n+model = DDP(net, bucket_cap_mb=25)\n"
PATCH = f"--- a/acme_train.py\n+++ b/acme_train.py\n{HUNK}"
WHY = "RuntimeError: secret_module_of_acme is not there"


def _tried(one: TrialCandidate, state: str, why: str, *measured: Any) -> Tried:
    """A candidate that was tried, with its gain, results and memory."""
    return Tried((one.name,), (), one.finding, state, why, one.predicted, *measured)


KEPT_ONE, LOST_ONE, FAILED_ONE = (
    TrialCandidate(name, group, values, PLACE, finding, Predicted(share, share - 0.05, share + 0.05, "finding"))
    for name, group, values, finding, share in (
        (f"bucket_cap_mb=25 at {PLACE}", "0", {"bucket_cap_mb": 25}, "comm.latency_bound", 0.3),
        (f"bucket_cap_mb=50 at {PLACE}", "0", {"bucket_cap_mb": 50}, "comm.latency_bound", 0.2),
        ("gc_interval=100", "1", {"gc_interval": 100}, "host.gc", 0.1),
    )
)
LESS = "gained less than 3.0 % of the step in each of 2 pairs"
SAME = Results("same", 0.0, None, None)
ANSWER = TuningAnswer(
    verdict=KEEP, chosen=(KEPT_ONE,), measured=MeasuredGain(0.28, 0.26, 0.3, 5),
    step_us=100_000.0, after_us=72_000.0, least_share=0.03, smallest_share=0.05,
    baseline_memory=Memory(30 * GIB, 80 * GIB),
    tried=(
        _tried(LOST_ONE, "lost", LESS, MeasuredGain(0.01, None, None, 2), SAME, Memory(31 * GIB, 80 * GIB)),
        _tried(KEPT_ONE, "kept", "", MeasuredGain(0.28, 0.26, 0.3, 5), SAME, Memory(32 * GIB, 80 * GIB)),
        _tried(FAILED_ONE, "failed", WHY, None, Results("unknown", None, None, None), None),
    ),
    untried=(Untried("tf32=true", "changes the precision of the training (--allow-numerics)"),),
    runs=3, run_s=14.0, spent_s=42.0, calibration={"comm.latency_bound": Calibration(12, 14)}, patch=PATCH,
)  # fmt: skip


def state() -> TuneState:
    held = [
        Trial("diagnosis", (), "000-diagnosis", 20.0, 50, 101_000.0),
        Trial("baseline", (), "001-baseline", 14.0, 50, 100_000.0, (100_000.0,) * 40),
        Trial(KEPT_ONE.name, (KEPT_ONE.name,), "002-bucket", 14.0, 50, 72_000.0, (72_000.0,) * 40),
    ]
    options, plan, three = TuneOptions(COMMAND, 600.0, 40), RunPlan(10, 40), (KEPT_ONE, LOST_ONE, FAILED_ONE)
    about = {"options": options, "cwd": CWD, "started_utc": "2026-11-23T12:00:00Z"}
    return TuneState(**about, plan=plan, candidates=three, trials=held)


@cache
def _made() -> tempfile.TemporaryDirectory[str]:
    folder = tempfile.TemporaryDirectory(prefix="ddprof-tuned-")
    generate(Path(folder.name), "comm.latency_bound")
    return folder


def run_of_command(folder: Path) -> Path:
    """A run folder with traces of small buckets, whose manifest has the command; returns it."""
    run = Path(shutil.copytree(Path(_made().name) / "traces", folder / "traces"))
    manifest(run, shlex.join(COMMAND))
    return run


def manifest(run: Path, command: str, cwd: str = CWD) -> None:
    (run / "manifest.json").write_text(json.dumps({"schema": "ddprof.run/1", "command": command, "cwd": cwd}))


def tuned(folder: Path, answer: TuningAnswer | None = ANSWER) -> Path:
    """The folder, its diagnosis in it."""
    (folder / "trials" / "000-diagnosis").mkdir(parents=True)
    run_of_command(folder / "made").rename(folder / "trials" / "000-diagnosis" / "run")
    write_document(state(), folder, answer)
    if answer is not None:
        (folder / "FIXES.toml").write_text(write_fixes([(KEPT_ONE.fix, "")]))
    return folder
