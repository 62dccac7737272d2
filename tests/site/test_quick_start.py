"""The quick start, followed word for word on two CPU ranks: run, read, fix, verify."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "quick-start.md"
_NOT_HERE = ("ddprof serve", "git apply")  # one never ends, the other needs a repository around the folder


def told(page: str) -> str:
    """The commands that the page tells its reader to type after installing, with two ranks for eight."""
    after = page.partition("## Run\n")[2]
    lines = "\n".join(re.findall(r"^```bash\n(.*?)^```", after, re.MULTILINE | re.DOTALL)).splitlines()
    return "\n".join(line.replace("=8", "=2") for line in lines if not line.startswith(_NOT_HERE))


@pytest.mark.torch
def test_a_reader_who_types_what_it_says_gets_to_the_verified_fix(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("libcst")
    page = PAGE.read_text(encoding="utf-8")
    (script,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "train.py").write_text(script, encoding="utf-8")
    programs = Path(sys.executable).parent
    environment = os.environ | {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "XDG_DATA_HOME": str(tmp_path / "data"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    commands = told(page)
    assert all(f"ddprof {name} " in commands for name in ("run", "analyze", "report", "compare", "verify", "patch"))
    done = subprocess.run(
        ["bash", "-e", "-c", commands], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "INPUT-BOUND: Every rank waits for its data loader" in done.stdout
    assert "Faster by " in done.stdout and "mostly data loader" in done.stdout
    assert re.search(r"^predicted .*\nmeasured .*\noutcome ", done.stdout, re.MULTILINE)
    assert "num_workers=" in (tmp_path / "fix.patch").read_text(encoding="utf-8")
