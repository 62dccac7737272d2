"""Runs sent to any fsspec address, while the job runs and when it has ended."""

import json
import os
from pathlib import Path

import fsspec
import pytest
from runs import bare_run, cli, wait_until

from ddprof.capture.files.layout import host_label
from ddprof.capture.launcher import sent
from ddprof.capture.launcher.sent import GIVE_UP, RunUpload

STEM = "rank0.host.7.0"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "manifest.json").write_text("{}")
    return folder


@pytest.fixture
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sent, "LOOK_S", 0.02)


def names_at(url: str) -> list[str]:
    files, path = fsspec.core.url_to_fs(url)
    files.invalidate_cache()
    return sorted(str(name).rpartition("/")[2] for name in files.find(path))


def content_at(url: str) -> str:
    files, path = fsspec.core.url_to_fs(url)
    return files.cat(path).decode()


def test_upload_to_any_fsspec_url_and_into_new_folders(run: Path, tmp_path: Path) -> None:
    done = RunUpload(run, "memory://bucket/runs").end()
    assert (done.address, done.sent, done.kept) == ("memory://bucket/runs/run", 1, ())
    assert done.line(run) == "uploaded to memory://bucket/runs/run"
    assert content_at("memory://bucket/runs/run/manifest.json") == "{}"
    RunUpload(run, f"file://{tmp_path}/new/runs").end()
    assert (tmp_path / "new" / "runs" / "run" / "manifest.json").read_text() == "{}"


def test_hosts_of_one_job_keep_their_manifests(tmp_path: Path) -> None:
    for host in ("a", "b"):
        folder = tmp_path / host / "train-slurm77.0"
        folder.mkdir(parents=True)
        (folder / "manifest.json").write_text(host)
        RunUpload(folder, f"file://{tmp_path}/store").end()
    found = {path.name: path.read_text() for path in (tmp_path / "store" / "train-slurm77.0").iterdir()}
    assert found == {"manifest.json": "a", f"manifest.{host_label()}.{os.getpid()}.json": "b"}


def test_links_are_not_uploaded(run: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("precious")
    (run / "notes.json").symlink_to(tmp_path / "secret")
    os.mkfifo(run / "pipe.json")
    assert RunUpload(run, f"file://{tmp_path}/store").end().sent == 1
    assert [path.name for path in (tmp_path / "store").glob("**/*.json")] == ["manifest.json"]


@pytest.mark.usefixtures("looks_often")
def test_finished_files_are_in_the_bucket_while_the_job_runs(run: Path, bucket: str) -> None:
    there = f"{bucket}/runs/run"
    (run / f"{STEM}.ring").write_bytes(b"ring")
    (run / f"{STEM}.0.pt.trace.json.9.tmp").write_bytes(b"half of it")
    uploads = RunUpload(run, f"{bucket}/runs")
    uploads.start()
    uploads.start()
    wait_until(lambda: names_at(there) == ["manifest.json"])
    (run / f"{STEM}.0.pt.trace.json").write_bytes(b"plain")
    wait_until(lambda: f"{STEM}.0.pt.trace.json" in names_at(there))
    (run / f"{STEM}.0.pt.trace.json").rename(run / f"{STEM}.0.pt.trace.json.gz")  # compressed meanwhile
    wait_until(lambda: names_at(there) == ["manifest.json", f"{STEM}.0.pt.trace.json.gz"])
    (run / f"{STEM}.0.pt.trace.json.9.tmp").unlink()
    (run / "manifest.json").write_text('{"exit_code": 0}')
    done = uploads.end()
    assert (done.sent, done.kept) == (3, ())
    assert names_at(there) == ["manifest.json", f"{STEM}.0.pt.trace.json.gz", f"{STEM}.ring"]
    assert content_at(f"{there}/manifest.json") == '{"exit_code": 0}'


@pytest.mark.usefixtures("looks_often")
def test_what_could_not_be_uploaded_is_said_and_kept(run: Path, bucket: str, capfd: pytest.CaptureFixture[str]) -> None:
    for number in range(GIVE_UP + 2):
        (run / f"rank{number}.host.7.0.sidecar.json").write_text("{}")
    uploads = RunUpload(run, "s3://ddprof-no-such-bucket-of-ours/runs")
    uploads.start()
    seen: list[str] = []
    wait_until(lambda: seen.extend(capfd.readouterr().err.splitlines()) or seen)
    done = uploads.end()
    assert len(seen) == 1 and "no upload so far (" in seen[0]
    assert (done.sent, len(done.kept)) == (0, GIVE_UP + 3)
    assert done.line(run).startswith(f"{GIVE_UP + 3} of {GIVE_UP + 3} files could not be uploaded to s3://")
    assert done.line(run).endswith(f"): kept in {run}") and len(list(run.iterdir())) == GIVE_UP + 3
    files, _ = fsspec.core.url_to_fs(bucket)
    assert not files.exists("s3://ddprof-no-such-bucket-of-ours")  # a misspelt one is not made


def test_one_file_that_cannot_be_read_is_named(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (run / "rank0.host.7.0.sidecar.json").write_text("{}")
    put = sent._Store.put

    def fails(store: sent._Store, path: Path) -> bool:
        if path.name == "manifest.json":
            raise ConnectionResetError("connection reset by peer")
        return put(store, path)

    monkeypatch.setattr(sent._Store, "put", fails)
    done = RunUpload(run, f"file://{tmp_path}/store").end()
    assert done.sent == 1 and done.line(run).startswith("manifest.json could not be uploaded to")
    assert "ConnectionResetError: connection reset by peer" in done.line(run)


def test_a_run_ends_in_the_bucket(bucket: str, tmp_path: Path) -> None:
    done = bare_run(cli("--out", f"{bucket}/runs", "--name", "t", "--", "true"), TMPDIR=str(tmp_path))
    assert done.returncode == 0
    address = done.stderr.splitlines()[-1].removeprefix("ddprof: uploaded to ")
    assert names_at(address) == ["manifest.json"]
    assert json.loads(content_at(f"{address}/manifest.json"))["exit_code"] == 0
