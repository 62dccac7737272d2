"""`ddprof report` on the command line: the pages, and a run to compare with."""

from pathlib import Path


def test_a_saved_report_becomes_pages_with_a_comparison_where_asked(ddprof, saved: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.html"
    code, told, err = ddprof("report", str(saved), "-o", str(out))
    text = out.read_text(encoding="utf-8")
    assert (code, told) == (0, "") and f"wrote {out}" in err
    assert "Largest saving: " in text and 'id="ranks"' in text and 'id="compare"' not in text and "node-b" in text
    assert ddprof("report", str(saved), "-o", str(out), "--redact")[0] == 0
    assert "node-b" not in out.read_text(encoding="utf-8")
    assert ddprof("report", str(saved), "--against", str(saved), "-o", str(out))[0] == 0
    assert 'id="compare"' in out.read_text(encoding="utf-8")


def test_the_demo_writes_the_same_file(ddprof, sample, tmp_path: Path) -> None:
    demo, report = tmp_path / "demo.html", tmp_path / "report.html"
    assert ddprof("demo", "slow_gpu", "-o", str(demo))[0] == 0
    assert ddprof("report", f"{sample('slow_gpu')}/traces", "--no-cache", "-o", str(report))[0] == 0
    assert 'id="timeline-tile"' in demo.read_text(encoding="utf-8")
    assert demo.read_text(encoding="utf-8") == report.read_text(encoding="utf-8")
