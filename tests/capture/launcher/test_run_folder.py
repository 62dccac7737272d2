"""One folder for all nodes of a job."""

import json
import os
import stat
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from runs import ddprof_run

from ddprof.capture.files.layout import host_label
from ddprof.capture.launcher.run_folder import SharedJob, create, join, private_folder

NOBODY = 65534
SLURM = SharedJob("slurm77.0", 2)
AT = SharedJob("at-node0-29500", 2, is_unique=False)


def test_nodes_of_a_slurm_job_share_a_folder(tmp_path: Path) -> None:
    first = create(tmp_path, "train", 0.0, SLURM)
    second = create(tmp_path, "train", 5.0, SLURM)
    assert first.path == second.path == (tmp_path / "train-slurm77.0").resolve()
    assert first.manifest.name == "manifest.json"
    assert second.manifest.name == f"manifest.{host_label()}.{os.getpid()}.json"
    assert (tmp_path / "latest").resolve() == first.path


@pytest.mark.parametrize(
    ("parts", "ended", "later_s", "is_met"),
    [(1, False, 5, True), (1, True, 5, False), (2, False, 5, False), (1, False, 5000, False)],
    ids=["runs", "ended", "full", "killed long ago"],
)
def test_a_later_job_gets_its_own_folder(tmp_path: Path, parts: int, ended: bool, later_s: int, is_met: bool) -> None:
    first = [create(tmp_path, "train", time.time(), AT) for _ in range(parts)]
    for part in first:
        part.manifest.write_text(json.dumps({"ended_ns": 5} if ended else {"ended_utc": None}))
    found = create(tmp_path, "train", time.time() + later_s, AT)
    assert found.path.name == ("train-at-node0-29500" if is_met else "train-at-node0-29500-2")


def test_one_of_the_next_attempt_leads_in_a_folder_whose_job_has_ended(tmp_path: Path) -> None:
    own = f"manifest.{host_label()}.{os.getpid()}.json"
    first = join(tmp_path).manifest
    for content in ("", '{"ended_utc": null}', "{", "[]"):
        first.write_text(content)
        assert join(tmp_path).manifest.name == own
    first.write_text('{"ended_ns": 5}')
    start = threading.Barrier(4)

    def joined(_: int) -> str:
        start.wait()
        return join(tmp_path).manifest.name

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(joined, range(4))) == ["manifest.json", own, own, own]
    assert first.read_text() == "" and list(tmp_path.iterdir()) == [first]


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary folder of all users."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    folder.chmod(0o1777)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def foreign(path: Path) -> None:
    """A folder of another user, with code in the places where Python looks."""
    for name in ("sitecustomize.py", ".shim/sitecustomize.py", "torch.py"):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text("print('STOLEN')\n")
    if os.getuid() == 0:
        for each in (path, *path.rglob("*")):
            os.chown(each, NOBODY, NOBODY)
    else:
        path.chmod(0o777)


PLANTED: dict[str, Callable[[Path], object]] = {
    "another user's": foreign,
    "a link": lambda path: (path.with_name("elsewhere").mkdir(mode=0o700), path.symlink_to("elsewhere")),
    "a link to nothing": lambda path: path.symlink_to("nowhere"),
    "others may write": lambda path: (path.mkdir(), path.chmod(0o775)),
    "a file": Path.touch,
    "a FIFO": os.mkfifo,
}


def is_private(path: Path) -> bool:
    status = path.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and stat.S_IMODE(status.st_mode) == 0o700


def test_processes_of_a_user_find_each_other_and_ranks_of_one_job_share_the_private_folder(shared: Path) -> None:
    first, refused = private_folder()
    assert (first, refused) == (shared / f"ddprof-{os.getuid()}", None) and is_private(first)
    assert private_folder() == (first, None)
    one, other = (create(None, "train", now_s, SLURM) for now_s in (0.0, 5.0))
    assert one.path == other.path == first / "train-slurm77.0" and one.manifest != other.manifest
    (shared / "file").touch()
    assert create(shared / "file" / "runs", "train", 9.0, SLURM).path == one.path


@pytest.mark.parametrize("planted", PLANTED)
def test_what_is_not_safely_ours_is_refused(shared: Path, planted: str) -> None:
    PLANTED[planted](shared / f"ddprof-{os.getuid()}")
    path, refused = private_folder()
    assert is_private(path) and path.parent == shared
    assert refused is not None and refused.startswith(f"{shared}/ddprof-{os.getuid()} is not used (it")


@pytest.mark.parametrize("out", ["file://{}/store", "{}/file/runs"], ids=["URL", "read-only"])
def test_foreign_code_in_the_temporary_folder_is_not_run(shared: Path, out: str) -> None:
    (shared / "file").touch()
    for name in ("ddprof-runs", f"ddprof-{os.getuid()}"):
        foreign(shared / name)
    command = ["sh", "-c", "python -c 'print(6 * 7)'; exit 7"]
    run = ddprof_run(shared, command, "--out", out.format(shared), TMPDIR=str(shared))
    assert run.code == 7 and "42\n" in run.output
    assert "STOLEN" not in run.output and run.output.count(f"ddprof-{os.getuid()} is not used") == 1
    assert "Traceback" not in run.output
