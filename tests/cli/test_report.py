"""`ddprof report` on the command line: the pages, and a run to compare with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

Invoke = Callable[..., tuple[int, str, str]]


def test_a_saved_report_becomes_a_file_of_pages(ddprof: Invoke, saved: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.html"
    code, _, err = ddprof("report", str(saved), "-o", str(out))
    assert code == 0 and f"wrote {out}" in err
    text = out.read_text(encoding="utf-8")
    assert "STRAGGLER-BOUND" in text and 'id="ranks"' in text and 'id="compare"' not in text


def test_another_run_adds_the_comparison(ddprof: Invoke, saved: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.html"
    assert ddprof("report", str(saved), "--against", str(saved), "-o", str(out))[0] == 0
    assert 'id="compare"' in out.read_text(encoding="utf-8")


def test_a_comparison_wants_pages(ddprof: Invoke, saved: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.md"
    code, _, err = ddprof("report", str(saved), "--against", str(saved), "-o", str(out))
    assert code == 2 and "--against" in err and len(err.strip().splitlines()) == 1
    assert not out.exists()


def test_the_demo_writes_the_same_file(ddprof: Invoke, repo_root: Path, tmp_path: Path) -> None:
    sample = "slow_gpu"
    traces = repo_root / "sample_traces" / sample / "traces"
    demo, report = tmp_path / "demo.html", tmp_path / "report.html"
    assert ddprof("demo", sample, "-o", str(demo))[0] == 0
    assert ddprof("report", str(traces), "--no-cache", "-o", str(report))[0] == 0
    assert 'id="timeline-tile"' in demo.read_text(encoding="utf-8")
    assert demo.read_text(encoding="utf-8") == report.read_text(encoding="utf-8")
