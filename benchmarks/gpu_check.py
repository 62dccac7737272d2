"""Everything of ddprof that a real GPU decides, in one command of about 7 minutes, without a network.

    python -m pip install --no-index --find-links WHEELS ddprof     # torch is the machine's own
    python benchmarks/gpu_check.py --output benchmarks/results/gpu.json

WHEELS: what `pip download --dest WHEELS .` puts there, without torch and what it wants. Without a device the same is
done as far as a CPU goes (`--steps 12` for a dry run), and what needs one is listed as not run, with the reason. The
result says which device, which versions, and of each check what was expected and what was seen; it is written after
each check, so that what a time limit cuts off loses only the rest. `--seconds`: no check begins later. `--wide`: jobs
at once; they start side by side and have the device in turn. `--keep`: a folder for their recordings.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import mean, median
from threading import Lock
from typing import Any

JOBS = Path(__file__).with_name("gpu_jobs.py")
WARM = 5  # steps that are not counted: the first ones compile, allocate and choose kernels
# Fault -> the findings that may name it. Those of a device alone are not run without one.
FAULTS = {
    "item_per_layer": ("host.sync",),
    "pageable_copies": ("input.pageable_copy",),
    "tiny_kernels": ("host.launch_bound",),
    "unfused_optimizer": ("compute.unfused_optimizer", "host.launch_bound"),
    "fp32_products": ("compute.precision",),
    "allocator_churn": ("host.allocator",),
    "slow_loader": ("input.starved",),
    "late_loader": ("input.straggler", "input.starved"),
    "python_between": ("host.script", "host.launch_bound"),
    "saves_every_third": ("host.checkpoint",),
}
ON_A_CPU = ("slow_loader", "late_loader", "python_between", "saves_every_third")
CAPTURES = ("ddp", "fsdp2", "autocast", "compiled", "graphs")
CALL_S = 120  # of one command: a job that hangs costs no more
ROUNDS, MOST_OVERHEAD = 5, 0.02  # runs in turn; of a step
CLOSE = 0.05  # relative: the device's events and ddprof time one step within this


@dataclass(frozen=True)
class Checked:
    """One check: `outcome` is "passed", "failed" or "not run"; `seen` says what came of it, or why it was not run."""

    name: str
    outcome: str
    seen: dict[str, Any]


@dataclass(frozen=True)
class Setup:
    """Environment of the jobs. `device`: its name, "" where there is none; `bare`: times of the faults and their twins
    in one process without ddprof, ms, measured by the first check that asks. `keep`: where recordings stay."""

    folder: Path
    steps: int
    device: str
    keep: Path | None
    bare: dict[str, list[float]] = field(default_factory=dict)
    measuring: Lock = field(default_factory=Lock)


Check = Callable[[Setup], "tuple[bool, dict[str, Any]] | str"]


def main() -> None:
    """Check, print a line for each, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=None)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--only", default="", help="Checks whose names begin so.")
    parser.add_argument("--seconds", type=float, default=450.0, help="No check begins later than this.")
    parser.add_argument("--wide", type=int, default=1, help="Jobs at once, on the device in turn.")
    parser.add_argument("--keep", type=Path, default=None, help="Keep the recordings in this folder.")
    options = parser.parse_args()
    import torch

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
    until, writing = time.monotonic() + options.seconds, Lock()
    done: list[Checked] = []
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.wide) as pool:
        os.environ["GPU_TURN"] = f"{folder}/turn.lock"
        setup = Setup(Path(folder), options.steps, device, options.keep)

        def checked(name: str, check: Check) -> None:
            late = time.monotonic() > until
            result = Checked(name, "not run", {"why": "no time"}) if late else _guarded(name, check, setup)
            print(f"{result.outcome:<8} {name}: {json.dumps(result.seen)[:200]}", flush=True)
            with writing:
                done.append(result)
                if options.output is not None:
                    options.output.write_text(json.dumps(_document(setup, done), indent=1) + "\n")

        for task in [pool.submit(checked, *one) for one in checks() if one[0].startswith(options.only)]:
            task.result()
    sys.exit(any(each.outcome == "failed" for each in done))


def _document(setup: Setup, found: list[Checked]) -> dict[str, Any]:
    import torch

    return {
        "date": time.strftime("%Y-%m-%d"),
        "device": setup.device or "none (CPU)",
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "steps": setup.steps,
        "checks": [asdict(each) for each in found],
    }


def checks() -> Iterator[tuple[str, Check]]:
    """Each check by name: whether it passed with what was seen, or why it cannot be run here."""
    for job in CAPTURES:
        yield f"capture.{job}", lambda setup, job=job: _captured(setup, job)  # type: ignore[misc]
    yield "capture.two_ranks", lambda setup: _captured(setup, "ddp", ranks=2)
    yield "overhead", _overhead
    for fault in FAULTS:
        yield f"fault.{fault}", lambda setup, fault=fault: _fault(setup, fault)  # type: ignore[misc]
    yield "memory", _memory


def _guarded(name: str, check: Check, setup: Setup) -> Checked:
    try:
        answer = check(setup)
    except (subprocess.SubprocessError, OSError, ValueError, ArithmeticError, LookupError) as error:
        return Checked(name, "failed", {"error": str(error)[-1500:]})
    if isinstance(answer, str):
        return Checked(name, "not run", {"why": answer})
    return Checked(name, "passed" if answer[0] else "failed", answer[1])


def _captured(setup: Setup, job: str, ranks: int = 1) -> tuple[bool, dict[str, Any]] | str:
    """A job under `ddprof run`: traces, ranges, kernels, and steps that are as long as the device's own events say."""
    if not setup.device and job in ("graphs", "fsdp2", "compiled"):
        return "needs a CUDA device"
    report, times, traces = _run(setup, job, ranks)
    names = {event.get("name", "") for trace in traces for event in trace}
    kernels = sum(event.get("cat") == "kernel" for trace in traces for event in trace)
    timed_ms = (report["steps"]["untraced_us"] or 0.0) / 1e3
    own_ms = median(times[WARM:])
    ledger = report["ledger"]["job"]
    seen = {
        "ranks": report["run"]["ranks"],
        "device": report["run"]["device"],
        "ranges": sorted(name for name in names if name.startswith("ddprof::"))[:8],
        "kernels": kernels,
        "step_ms": timed_ms,
        "step_by_events_ms": own_ms,
        "ledger_off": abs(sum(us for cause, us in ledger.items() if cause != "wall_us") / ledger["wall_us"] - 1),
        "replay_error": report["replay"]["error"],
    }
    is_close = not setup.device or abs(timed_ms / own_ms - 1) <= CLOSE
    has_work = bool(kernels) or not setup.device
    passed = len(seen["ranks"]) == ranks and seen["ranges"] and has_work and is_close and seen["ledger_off"] < 1e-3
    return bool(passed), seen


def _overhead(setup: Setup) -> tuple[bool, dict[str, Any]]:
    """Runs with and without ddprof in turn: the typical step before a trace window and after it, over the bare one."""
    opens = setup.steps // 2
    shares: dict[str, list[float]] = {"before_window": [], "after_window": []}
    for _ in range(ROUNDS):
        bare = median(_plain(setup, "ddp", ranks=1)["ddp"][WARM:])
        _, times, _ = _run(setup, "ddp", 1, opens)
        shares["before_window"].append(median(times[WARM:opens]) / bare - 1)
        shares["after_window"].append(median(times[opens + 2 * WARM :]) / bare - 1)
    return not setup.device or max(map(median, shares.values())) < MOST_OVERHEAD, dict(shares)


def _fault(setup: Setup, fault: str) -> tuple[bool, dict[str, Any]] | str:
    """A fault and its twin: the finding, and its predicted gain against the measured one."""
    if not setup.device and fault not in ON_A_CPU:
        return "needs a CUDA device"
    ranks = 2 if fault == "late_loader" else 0
    report, _, _ = _run(setup, fault, ranks)
    with setup.measuring:
        if fault not in setup.bare:
            others = [name for name in FAULTS if name != "late_loader" and (setup.device or name in ON_A_CPU)]
            setup.bare.update(_plain(setup, *([fault] if ranks else others), ranks=ranks, both=True))
    before, after = (mean(setup.bare[name][WARM:]) for name in (fault, f"{fault} twin"))
    told = [finding for finding in report["findings"] if finding["id"] in FAULTS[fault]]
    told.sort(key=lambda finding: FAULTS[fault].index(finding["id"]))
    gain, most = (_gain_us(findings) for findings in (told, report["findings"]))
    seen = {
        "found": [finding["id"] for finding in report["findings"]],
        "headline": report["verdict"]["headline"],
        "measured_gain_ms": before - after,
        "predicted_gain_ms": None if gain is None else {name: us / 1e3 for name, us in gain.items()},
    }
    if not setup.device:  # which fault leads there is measured elsewhere: here the check itself is tried
        return True, seen
    # On a fast device launches may cost more than the fault.
    is_first = bool(told) and report["findings"][0]["id"] in FAULTS[fault]
    return is_first or bool(told and most and most["value"] / 1e3 > before - after), seen


def _gain_us(findings: list[dict[str, Any]]) -> dict[str, float] | None:
    """Gain of the first finding, without the profiler where that is known."""
    return (findings[0]["recoverable_untraced_us"] or findings[0]["recoverable_us"]) if findings else None


def _memory(setup: Setup) -> tuple[bool, dict[str, Any]] | str:
    """A snapshot with history, read by `ddprof memory`."""
    if not setup.device:
        return "needs a CUDA device"
    path = setup.folder / "snapshot.pickle"
    code = (
        "import torch; torch.cuda.memory._record_memory_history()\n"
        "m = torch.nn.Linear(4096, 4096).cuda(); o = torch.optim.AdamW(m.parameters())\n"
        "for _ in range(3): m(torch.ones(64, 4096, device='cuda')).sum().backward(); o.step(); o.zero_grad()\n"
        f"torch.cuda.memory._dump_snapshot({str(path)!r})"
    )
    _call([sys.executable, "-c", code])
    document = json.loads(_call([sys.executable, "-m", "ddprof.cli.main", "memory", str(path), "--format", "json"]))
    return "parameters" in json.dumps(document), {"keys": sorted(document)[:12]}


def _run(
    setup: Setup, job: str, ranks: int, opens: int | None = None
) -> tuple[dict[str, Any], list[float], list[list[dict[str, Any]]]]:
    """The report of a job under `ddprof run`, its own times (ms), and the events of its traces."""
    import gzip

    out = Path(tempfile.mkdtemp(dir=setup.folder))
    first = min(10, setup.steps // 3) if opens is None else opens
    skip = ["--skip", str(first), "--steps", str(min(5, max(2, setup.steps // 4)))]
    run = [sys.executable, "-m", "ddprof.cli.main", "run", "--run-dir", str(out), *skip, "--"]
    _call([*run, *_job(setup, out / "times", (job,), ranks)])
    report = json.loads(_call([sys.executable, "-m", "ddprof.cli.main", "analyze", str(out), "--format", "json"]))
    if setup.keep is not None:
        shutil.copytree(out, setup.keep / job / str(ranks), dirs_exist_ok=True)
    traces = [json.loads(gzip.decompress(path.read_bytes())) for path in sorted(out.glob("*.pt.trace.json.gz"))]
    return report, json.loads((out / "times").read_text())[job], [trace["traceEvents"] for trace in traces]


def _plain(setup: Setup, *jobs: str, ranks: int = 0, both: bool = False) -> dict[str, list[float]]:
    """The jobs' own times (ms) without ddprof, one after the other in one process of each rank."""
    times = Path(tempfile.mkdtemp(dir=setup.folder)) / "times"
    _call([*_job(setup, times, jobs, ranks), *(["--both"] if both else [])])
    found: dict[str, list[float]] = json.loads(times.read_text())
    return found


def _job(setup: Setup, times: Path, jobs: Sequence[str], ranks: int) -> list[str]:
    """The command of a job; of 0 ranks: without a launcher, which takes some seconds."""
    launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"] if ranks else []
    return [sys.executable, *launch, str(JOBS), *jobs, "--steps", str(setup.steps), "--times", str(times)]


def _call(command: list[str]) -> str:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=CALL_S, env=environment)
    if done.returncode:
        raise ValueError(f"{' '.join(command[-6:])} ended with {done.returncode}: {done.stderr[-1200:]}")
    return done.stdout


if __name__ == "__main__":
    main()
