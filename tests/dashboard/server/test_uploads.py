"""Uploads: who may send, how much, under what names it is kept, and that it is analyzed like anything else."""

import gzip
import http.client
import io
import json
import os
import pickle
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ddprof.dashboard.app import create_app
from ddprof.dashboard.http import make_server
from ddprof.dashboard.pages.data import FIELD, HEADER
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.dashboard.runs.served import Runs
from ddprof.dashboard.server import uploads as uploads_module
from ddprof.dashboard.server.guard import UPLOAD_PATH, Access
from ddprof.dashboard.server.uploads import stored_names
from ddprof.report.json.contract import to_contract

LIMIT_BYTES, FROM_OUR_PAGE = 3_000_000, {HEADER: "1"}
PARTS = {**FROM_OUR_PAGE, "Content-Type": "multipart/form-data; boundary=b"}
Post, Files = Callable[..., Any], list[tuple[str, bytes]]
BEYOND = ("0.0.0.0", "a-secret-of-many-characters", 400)
KEPT_NAMES = [
    *(("../../x.json", "x.json"), ("..\\..\\x.json", "x.json"), ("/etc/passwd", "passwd"), ("..", "file")),
    *(("<script>alert(1)</script>.json", "script_.json"), ("<b>.json", "_b_.json"), (".hidden", "hidden")),
    *(("rank 3.pt.trace.json.gz", "rank_3.pt.trace.json.gz"), ("$(reboot).json", "_reboot_.json")),
    *(("x" * 500 + ".json.gz", "x" * 92 + ".json.gz"), ("a\x00b\n.json", "a_b_.json")),
]


@pytest.fixture
def private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


@pytest.fixture
def runs(straggler: OpenRun) -> Runs:
    return Runs([], [straggler])


@pytest.fixture
def post(runs: Runs, private: Path) -> Post:
    """`post((name, content), ...)` -> answer of the server."""
    client = create_app(runs, Access(), upload_bytes=LIMIT_BYTES).server.test_client()

    def send(*files: tuple[str, bytes], headers: dict[str, str] = FROM_OUR_PAGE) -> Any:
        data = {FIELD: [(io.BytesIO(content), name) for name, content in files]}
        return client.post(UPLOAD_PATH, data=data, headers=headers, content_type="multipart/form-data")

    return send


@pytest.fixture
def files(straggler_traces: Path) -> Files:
    return [(file.name, file.read_bytes()) for file in sorted(straggler_traces.glob("*.gz"))]


def is_refused(answer: Any, status: int, words: str) -> bool:
    """True where the answer has that status and one line of plain text with the words."""
    plain = answer.mimetype == "text/plain" and "\n" not in answer.text and "Traceback" not in answer.text
    return answer.status_code == status and plain and words in answer.text


def zipped(*files: tuple[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files:
            archive.writestr(name, content)
    return packed.getvalue()


def test_reports_and_archives_are_taken(post: Post, runs: Runs, files: Files, straggler: OpenRun) -> None:
    assert post(("saved.json", json.dumps(to_contract(straggler.report)).encode())).json == {"run": 1}
    assert post(("run.zip", zipped(*((f"../run/{name}", content) for name, content in files)))).json == {"run": 2}
    assert [s.has_traces for s in runs.open_runs] == [True, False, True]
    assert {s.report.verdict for s in runs.open_runs} == {straggler.report.verdict} and runs.version == 3
    assert runs.open_runs[2].report.run.ranks == straggler.report.run.ranks


def test_an_added_run_stays(post: Post, runs: Runs, files: Files, tmp_path: Path, monkeypatch: Any) -> None:
    post(*files)
    monkeypatch.setattr("ddprof.dashboard.runs.served.LEAST_PAUSE_S", 0.0)
    (tmp_path / files[0][0]).write_bytes(files[0][1])
    runs.paths = (str(tmp_path / files[0][0]),)
    runs.refresh()
    assert [len(s.report.run.ranks) for s in runs.open_runs] == [1, len(files)]


def test_too_much_is_refused_unread(post: Post, private: Path, runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = post(("trace.json", b"x" * (LIMIT_BYTES + 1)))
    assert is_refused(answer, 413, "larger than 2.86 MiB") and "--max-upload" in answer.text
    assert list(private.iterdir()) == [] and len(runs.open_runs) == 1
    monkeypatch.setattr(uploads_module, "MOST_UNPACKED", 2)
    much = gzip.compress(b'{"traceEvents": [' + b" " * (3 * LIMIT_BYTES))
    assert len(much) < LIMIT_BYTES / 100
    assert is_refused(post(("x.json.gz", much)), 400, "unpacks to more than 5.72 MiB")
    assert is_refused(post(("x.zip", zipped(("rank0.json.gz", much)))), 400, "unpacks to more than")
    assert list(private.rglob("x*")) == []


def test_the_limit_holds_without_a_stated_length(serve: Callable[..., str], straggler: OpenRun) -> None:
    address = serve([straggler], max_upload_bytes=LIMIT_BYTES)
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=300)
    head = f'--b\r\nContent-Disposition: form-data; name="{FIELD}"; filename="x.json"\r\n\r\n'.encode()
    body = (head, *[b"x" * 100_000] * 40, b"\r\n--b--\r\n")
    connection.request("POST", UPLOAD_PATH, iter(body), PARTS, encode_chunked=True)
    assert connection.getresponse().status == 413


@pytest.mark.parametrize(("stated", "kept"), KEPT_NAMES)
def test_names_are_plain(stated: str, kept: str) -> None:
    assert stored_names([stated]) == [kept]


def test_hostile_and_equal_names_are_kept_apart(post: Post, private: Path, runs: Runs, files: Files) -> None:
    content = files[0][1]
    assert post(("../../../x.json.gz", content), ("<img src=x>.json.gz", content)).status_code == 200
    (folder,) = private.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {file.name for file in folder.glob("*/upload-1/*.gz")} == {"x.json.gz", "_img_src=x_.json.gz"}
    assert "<" not in runs.open_runs[1].report.run.name
    assert stored_names(["a/x.json", "b/x.json", "x.json"]) == ["x.json", "1-x.json", "2-x.json"]
    assert stored_names(["1-x.json", "x.json", "x.json"]) == ["1-x.json", "x.json", "2-x.json"]
    assert stored_names(["x.json"] * 20_000)[-1] == "19999-x.json"


def test_what_is_no_upload_is_named_in_one_line(post: Post, private: Path, runs: Runs, files: Files) -> None:
    assert is_refused(post(), 400, "no file")
    assert is_refused(post(files[0], headers={}), 403, "own page")  # another site
    broken = {"broken.json": b'{"traceEvents": [{"ph": "X", "na', "picture.png": b"\x89PNG\r\n\x1a\n" + b"\0" * 100}
    for name, content in {**broken, "empty.json": b"", "archive.zip": b"PK\x03\x04" + b"\0" * 200}.items():
        assert is_refused(post((name, content)), 400, name)
    assert len(runs.open_runs) == 1 and list(private.rglob("*.*")) == []
    assert all(str(private) not in post((name, b"{}")).text for name in ("x.json", "y.txt"))


@pytest.mark.parametrize("left", [None, OSError(28, "No space left on device", "x"), RuntimeError("\x1b[31mdefect")])
def test_after_a_failed_upload_others_are_taken(
    post: Post, private: Path, runs: Runs, files: Files, monkeypatch: pytest.MonkeyPatch, left: Any
) -> None:
    if left is not None:
        with monkeypatch.context() as patch:
            patch.setattr(uploads_module, "load", lambda *_: (_ for _ in ()).throw(left))
            for _ in range(3):
                answer = post(*files)
                said = type(left).__name__ if answer.text.startswith("the") else "No space left"
                assert is_refused(answer, 400, said) and "\x1b" not in answer.text
    assert [post(("x.json", content)).status_code for content in (b"", b"[" * 90_000, b"\x1f\x8b")] == [400] * 3
    assert list(private.rglob("*.*")) == []
    assert [post(*files).json for _ in range(2)] == [{"run": 1}, {"run": 2}] and len(runs.open_runs) == 3


def test_what_lies_in_the_folder_is_in_nobodys_way(post: Post, private: Path, files: Files) -> None:
    post(("x.json", b""))
    (folder,) = private.iterdir()
    for number in range(1, 5):
        (folder / f"upload-{number}").mkdir()
    assert post(*files).json == {"run": 1}


def test_uploads_are_bounded(serve: Callable[..., str], straggler: OpenRun, monkeypatch: pytest.MonkeyPatch) -> None:
    address = serve([straggler], max_upload_bytes=LIMIT_BYTES).removeprefix("http://")
    taken, read = threading.Semaphore(0), uploads_module._sent_files

    def begin() -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(address, timeout=300)
        connection.request("POST", UPLOAD_PATH, b"--b\r\n", {**PARTS, "Content-Length": "1000"})
        return connection

    monkeypatch.setattr(uploads_module, "_sent_files", lambda limit: (taken.release(), read(limit))[1])
    slow = [begin() for _ in range(uploads_module.RECEIVED_AT_ONCE)]
    assert all(taken.acquire(timeout=300) for _ in slow)
    further = begin().getresponse()
    assert further.status == 429 and b"try again" in further.read()
    for connection in slow:
        connection.close()


def test_no_pickle_runs_code(post: Post, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    evil = type("Evil", (), {"__reduce__": lambda _: (os.mkdir, ("unpickled",))})()
    dump = pickle.dumps({"version": "2.4", "entries": [evil], "pg_config": {}})
    assert is_refused(post(("nccl_trace_rank_0", dump)), 400, "refused")
    assert not (tmp_path / "unpickled").exists()


def test_few_are_kept_open(post: Post, files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads_module, "MAX_UPLOADS", 1)
    assert is_refused(post(("x.json", b"no trace")), 400, "x.json")  # what was refused does not count
    assert post(files[0]).status_code == 200 and is_refused(post(files[0]), 400, "1 uploads are open")


def test_small_limits_elsewhere_and_zero_switches_uploads_off(runs: Runs) -> None:
    client = create_app(runs, Access(), upload_bytes=LIMIT_BYTES).server.test_client()
    answer = client.post("/_dash-update-component", data=b"x" * 2_000_000, content_type="application/json")
    assert answer.status_code == 413
    assert create_app(runs, Access()).server.test_client().post(UPLOAD_PATH, headers=FROM_OUR_PAGE).status_code == 405


@pytest.mark.parametrize(("host", "token", "status"), [("127.0.0.1", None, 400), BEYOND, ("0.0.0.0", None, 405)])
def test_beyond_loopback_only_with_a_token(runs: Runs, host: str, token: str | None, status: int) -> None:
    server = make_server(runs, 0, Access(token, host), LIMIT_BYTES)
    try:
        client = server.app.test_client()  # type: ignore[attr-defined]
        if token:
            assert client.post(UPLOAD_PATH, headers=FROM_OUR_PAGE).status_code == 401
            client.get(f"/?token={token}")
        assert client.post(UPLOAD_PATH, headers=FROM_OUR_PAGE).status_code == status
    finally:
        server.server_close()
