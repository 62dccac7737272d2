"""`ddprof tune` on the workloads, on a quiet machine, DDPROF_ROUNDS times: a fault is removed; a healthy job stays."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ddprof.workloads.catalogue import WORKLOADS
from ddprof.workloads.slow_link import obstacle

ROOT = Path(__file__).resolve().parents[3]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"]
ROUNDS = int(os.environ.get("DDPROF_ROUNDS", "1"))
LONGEST_S = 3600.0

pytestmark = [pytest.mark.torch, pytest.mark.slow]


# workload, fault, the setting that removes it, the rate of its link where the machine's own would hide the fault
FAULTS = [
    *(("mnist_ddp", fault, "num_workers", "") for fault in ("slow-loader", "few-workers")),
    *(("mnist_ddp", "tiny-buckets", "bucket_cap_mb", ""), ("mnist_ddp", "new-workers", "persistent_workers", "")),
    ("resnet50_ddp", "few-workers", "num_workers", ""),
    ("gpt_fsdp2", "resharding", "reshard_after_forward", "1gbit"),
    ("bert_accelerate", "slow-loader", "num_workers", ""),
    ("deepspeed_zero", "tiny-buckets", "reduce_bucket_size", ""),
]


def _tuned(tmp_path: Path, workload: str, *arguments: str, rate: str = "") -> tuple[dict[str, object], Path]:
    for package in ("torch", *WORKLOADS[workload].packages):
        pytest.importorskip(package)
    if rate and (why := obstacle(rate)):
        pytest.skip(f"the link cannot be shaped here: {why}")
    link = [sys.executable, "-m", "ddprof.workloads.slow_link", "--rate", rate, "--"] if rate else []
    patch = tmp_path / "fix.patch"
    options = ["--yes", "--no-record", "--out", str(tmp_path / "out"), "--write-patch", str(patch)]
    job = [*link, *TORCHRUN, f"workloads/{workload}.py", "--steps", "300", *arguments]
    done = subprocess.run(
        [sys.executable, "-m", "ddprof.cli.main", "tune", *options, "--", *job],
        cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=LONGEST_S,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (path,) = (tmp_path / "out").glob("*/tune.json")
    found: dict[str, object] = json.loads(path.read_text())["result"]
    return found, patch


@pytest.mark.parametrize("number", range(ROUNDS))
@pytest.mark.parametrize(("workload", "fault", "setting", "rate"), FAULTS, ids=lambda part: str(part))
def test_the_fix_is_kept(tmp_path: Path, workload: str, fault: str, setting: str, rate: str, number: int) -> None:
    """With a gain that is certain, and without another change of what is trained."""
    found, patch = _tuned(tmp_path, workload, "--fault", fault, rate=rate)
    chosen, measured = found["chosen"], found["measured"]
    assert found["verdict"] == "keep", found
    assert isinstance(chosen, list) and any(setting in candidate["values"] for candidate in chosen)
    assert isinstance(measured, dict) and measured["low"] > 0
    kept = [row for row in found["tried"] if row["state"] == "kept"]  # type: ignore[attr-defined]
    assert all(row["results"]["kind"] == "same" for row in kept)
    if setting == "num_workers":
        subprocess.run(["git", "apply", "--check", str(patch)], cwd=ROOT, check=True)


@pytest.mark.parametrize("number", range(ROUNDS))
@pytest.mark.parametrize("workload", sorted({workload for workload, *_ in FAULTS}))
def test_a_healthy_job_is_let_be(tmp_path: Path, workload: str, number: int) -> None:
    found, patch = _tuned(tmp_path, workload)
    assert found["verdict"] == "nothing to change" and not found["chosen"] and not patch.exists()
