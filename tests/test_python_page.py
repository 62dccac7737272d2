"""The code of docs/python.md runs as it stands, block after block."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest


def test_every_block_runs(repo_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("plotly", reason="plotly is not installed (the extra `dashboard`)")
    page = (repo_root / "docs" / "python.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 5
    (tmp_path / "ddprof-runs").mkdir()
    (tmp_path / "ddprof-runs" / "latest").symlink_to(repo_root / "sample_traces" / "late_loader" / "traces")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for number, block in enumerate(blocks):
        exec(compile(block, f"docs/python.md, block {number}", "exec"), names)
    assert names["worst"].id == "input.straggler" and names["worst"].ranks == (2,)
    assert (tmp_path / "report.html").stat().st_size > 50_000
    assert "<iframe" in names["view"]._repr_html_()
