"""The quick start, followed word for word on two CPU ranks: run, read, fix, verify."""

import re
from pathlib import Path

import pytest
from scratch import made
from snippets import ROOT, blocks

_NOT_HERE = ("ddprof serve", "git apply")  # one never ends, the other needs a repository around the folder


@pytest.mark.torch
@pytest.mark.slow
def test_a_reader_who_types_what_it_says_gets_to_the_verified_fix(tmp_path: Path) -> None:
    """The fast tests run each of its lines, and its script, in the scratch folder."""
    pytest.importorskip("torch")
    pytest.importorskip("libcst")
    lines = "\n".join(blocks(ROOT / "docs" / "quick-start.md", "bash")).splitlines()
    after = lines[next(at for at, line in enumerate(lines) if line.startswith("ddprof run")) :]
    commands = "\n".join(line.replace("=8", "=2") for line in after if not line.startswith(_NOT_HERE))
    assert all(f"ddprof {name} " in commands for name in ("run", "analyze", "report", "compare", "verify", "patch"))
    ended = made(tmp_path, set()).run(f"set -e\n{commands}", programs="nothing")
    assert ended.code == "0", ended.said[-3000:]
    assert "Largest saving: Every rank waits for its data loader" in ended.said
    assert "Faster by " in ended.said and "mostly data loader" in ended.said
    assert re.search(r"^predicted .*\nmeasured .*\noutcome ", ended.said, re.MULTILINE)
    assert "num_workers=" in (tmp_path / "fix.patch").read_text(encoding="utf-8")
