"""Runs sent to any fsspec address."""

from __future__ import annotations

import os
from pathlib import Path

from ddprof.capture.files.layout import host_label
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


def test_hosts_of_one_job_keep_their_manifests(tmp_path: Path) -> None:
    for host in ("a", "b"):
        folder = tmp_path / host / "train-slurm77.0"
        folder.mkdir(parents=True)
        (folder / "manifest.json").write_text(host)
        upload(folder, f"file://{tmp_path}/store")
    found = {path.name: path.read_text() for path in (tmp_path / "store" / "train-slurm77.0").iterdir()}
    assert found == {"manifest.json": "a", f"manifest.{host_label()}.{os.getpid()}.json": "b"}


def test_links_are_not_uploaded(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("precious")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.json").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "run" / "pipe.json")
    upload(tmp_path / "run", f"file://{tmp_path}/store")
    assert list((tmp_path / "store" / "run").iterdir()) == []
