"""Analyses of a run folder while its job writes to it: files appear, grow, are renamed and vanish between two looks."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

RANKS = 2
ALL_STEPS = 1_000_000  # more than the job ever takes: it is ended when the analyses are done
GOOD_CODES = (0, 3, 4)  # 4: nothing to analyze yet, in one line
LONGEST_ANALYSIS_S = 60


@contextmanager
def job(folder: Path, repo_root: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Two gloo ranks that open a window of three steps every ten."""
    script = repo_root / "workloads" / "mnist_ddp.py"
    capture = [
        sys.executable,
        "-m",
        "ddprof.cli.main",
        "run",
        "--run-dir",
        str(folder),
        "--skip=2",
        "--steps=3",
        "--every=10",
    ]
    launch = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={RANKS}", "--standalone", str(script)]
    line = [*capture, "--", *launch, f"--steps={ALL_STEPS}"]
    with subprocess.Popen(line, cwd=folder.parent, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.terminate()
            process.wait(60)


def analysis(folder: Path) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "ddprof.cli.main", "analyze", str(folder), "--format=json"]
    return subprocess.run(line, capture_output=True, text=True, timeout=LONGEST_ANALYSIS_S, check=False)


@pytest.mark.torch
@pytest.mark.parametrize("count", [5, pytest.param(100, marks=pytest.mark.slow)])
def test_an_analysis_beside_a_capture_that_writes_never_fails(count: int, tmp_path: Path, repo_root: Path) -> None:
    """From the first second, when there is nothing to read yet, until `count` analyses have had both ranks."""
    folder, with_both = tmp_path / "run", 0
    with job(folder, repo_root) as process:
        while with_both < count:
            done = analysis(folder)
            assert done.returncode in GOOD_CODES and "Traceback" not in done.stderr, (with_both, done.stderr)
            if done.returncode == 4:
                assert len(done.stderr.splitlines()) == 1, done.stderr
            else:
                with_both += json.loads(done.stdout)["run"]["ranks"] == list(range(RANKS))
            assert process.poll() is None, "the job ended before the analyses did"
