"""The dry run of benchmarks/gpu_check.py on a CPU: what can run passes, what needs a device is listed as not run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.slow]
CHECK = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu_check.py"


def test_a_dry_run_passes_and_lists_what_was_not_run(tmp_path: Path) -> None:
    result = tmp_path / "gpu.json"
    hidden = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    for only in ("capture", "fault.item"):
        command = [sys.executable, str(CHECK), "--steps", "12", "--only", only, "--output", str(result)]
        subprocess.run(command, check=True, timeout=900, env=hidden)
        outcomes = {check["name"]: check["outcome"] for check in json.loads(result.read_text())["checks"]}
        assert "failed" not in outcomes.values() and "not run" in outcomes.values(), outcomes
