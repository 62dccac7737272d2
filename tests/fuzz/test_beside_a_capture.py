"""Analyses of a run folder while its job writes to it: files appear, grow, are renamed and vanish between two looks."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

RANKS = 2
GOOD_CODES = (0, 3, 4)  # 4: nothing to analyze yet, in one line

Job = tuple[subprocess.Popen[bytes], Path]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory, repo_root: Path) -> Iterator[Job]:
    """Two gloo ranks that sleep most of the time and open a window of three steps every ten, and their run folder."""
    folder = tmp_path_factory.mktemp("beside") / "run"
    ended, scripts = folder.parent / "ended", repo_root / "tests/capture/scripts"
    capture = ["-m", "ddprof.cli.main", "run", "--run-dir", str(folder), "--skip=2", "--steps=3", "--every=10", "--"]
    loop = [scripts / "forked_ranks.py", RANKS, scripts / "loop.py", "--sleep=0.05", f"--until={ended}"]
    line = [sys.executable, *capture, sys.executable, *map(str, loop)]
    with subprocess.Popen(line, cwd=folder.parent, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield process, folder
        finally:
            ended.touch()
            process.wait(300)


@pytest.mark.torch
@pytest.mark.parametrize("count", [2, pytest.param(100, marks=pytest.mark.slow)])
def test_an_analysis_beside_a_capture_that_writes_never_fails(ddprof, count: int, job: Job) -> None:
    """From the first second, when there is nothing to read yet, until `count` analyses have had both ranks."""
    (process, folder), with_both = job, 0
    while with_both < count:
        code, out, err = ddprof("analyze", str(folder), "--format=json", "--workers=1")
        assert code in GOOD_CODES, (with_both, err)
        if code == 4:
            assert len(err.splitlines()) == 1, err
            seen = _files(folder)
            while process.poll() is None and _files(folder) == seen:  # the same again tells nothing and costs a CPU
                time.sleep(0.05)
        else:
            with_both += json.loads(out)["run"]["ranks"] == list(range(RANKS))
        assert process.poll() is None, "the job ended before the analyses did"


def _files(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*")}
