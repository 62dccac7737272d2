"""Reports of Nsight Systems: read through an `nsys` on PATH, refused with the command to type without one."""

import gzip
import os
import shlex
import shutil
from pathlib import Path

import pytest
from reading import FORMATS, names, refusal, traces

from ddprof.model import Kind

REPORT = b"NVIDIA Tegra Profiler Report" + b"\0" * 100


@pytest.fixture
def report(tmp_path: Path) -> Path:
    file = tmp_path / "runs" / "my report.nsys-rep"
    file.parent.mkdir()
    file.write_bytes(REPORT)
    return file


def nsys(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An `nsys` of ours, alone on PATH with the shell's tools."""
    programs = folder / "bin"
    programs.mkdir()
    (programs / "nsys").write_text(f"#!/bin/sh\n{script}\n")
    (programs / "nsys").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")


def test_an_nsys_is_called(shared_dir: Path, report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = shared_dir / FORMATS / "nsys_sqlite" / "h100_2gpu_1s.sqlite.gz"
    database = tmp_path / "real.sqlite"
    with gzip.open(packed, "rb") as source, database.open("wb") as sink:
        shutil.copyfileobj(source, sink)
    said = shlex.quote(str(tmp_path / "said"))
    # nsys export --type sqlite --force-overwrite true --output FILE REPORT
    nsys(tmp_path, f'printf "%s\\n" "$@" > {said}; cp {shlex.quote(str(database))} "$7"', monkeypatch)
    assert [len(names(t, Kind.KERNEL)) for t in traces(report)] == [1721, 1721]
    said_words = (tmp_path / "said").read_text().split("\n")[:6]
    assert " ".join(said_words) == "export --type sqlite --force-overwrite true --output"
    assert [path.name for path in report.parent.iterdir()] == [report.name]  # nothing is left beside it


def test_an_nsys_that_fails_is_one_line(report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nsys(tmp_path, "echo 'Failed to import the report' >&2; exit 1", monkeypatch)
    assert "nsys cannot export it (Failed to import the report)" in refusal(report)
    report.with_suffix(".sqlite").write_bytes(b"SQLite format 3\0")
    assert "what to analyze: my report.sqlite" in refusal(report)
    # Without any nsys the command is said.
    report.with_suffix(".sqlite").unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "nsys export --type sqlite FILE" in refusal(report)
