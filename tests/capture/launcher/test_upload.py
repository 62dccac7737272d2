"""Runs sent to any fsspec address."""

from __future__ import annotations

from pathlib import Path

from ddprof.capture.launcher.upload import upload


def test_upload_to_any_fsspec_url(tmp_path: Path) -> None:
    import fsspec

    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "manifest.json").write_text("{}")
    address = upload(tmp_path / "run", "memory://bucket/runs")
    assert address == "memory:///bucket/runs/run"
    assert fsspec.filesystem("memory").cat("/bucket/runs/run/manifest.json") == b"{}"


def test_upload_makes_the_folders_of_a_file_system(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "manifest.json").write_text("{}")
    upload(tmp_path / "run", f"file://{tmp_path}/new/runs")
    assert (tmp_path / "new" / "runs" / "run" / "manifest.json").read_text() == "{}"
