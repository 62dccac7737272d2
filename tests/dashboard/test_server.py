"""The server: who is answered, what may be loaded, the data routes, and runs that change while they are looked at."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ddprof.dashboard.app import create_app
from ddprof.dashboard.http import compress, make_server
from ddprof.dashboard.runs import served as runs_module
from ddprof.dashboard.runs.live import hosts_now
from ddprof.dashboard.runs.open_run import OpenRun, load
from ddprof.dashboard.runs.served import Runs
from ddprof.dashboard.server.guard import Access, is_loopback
from ddprof.errors import NoUsableInput, UsageError

TOKEN = "a-secret-of-many-characters"


@pytest.fixture(scope="module")
def client(straggler: OpenRun) -> Any:
    """A client of the application on loopback."""
    server = create_app(Runs([], [straggler]), Access()).server
    compress(server)
    return server.test_client()


@pytest.fixture
def locked(straggler: OpenRun) -> Any:
    """A client of the application that demands a token."""
    return create_app(Runs([], [straggler]), Access(TOKEN)).server.test_client()


def test_loopback_answers_to_its_own_names_only(client: Any) -> None:
    for host in ("127.0.0.1:8050", "localhost:8050", "[::1]:8050"):
        assert client.get("/", headers={"Host": host}).status_code == 200
    assert client.get("/", headers={"Host": "evil.example:8050"}).status_code == 403
    assert client.get("/data/report.json", headers={"Host": "evil.example"}).status_code == 403


def test_a_token_is_demanded_on_every_route(locked: Any) -> None:
    for path in ("/", "/data/report.json", "/_dash-layout", "/data/dashboard.js"):
        assert locked.get(path).status_code == 401
        assert locked.get(path + "?token=wrong").status_code == 401
        assert locked.get(path + "?token=ÿ").status_code == 401
    answer = locked.get(f"/?token={TOKEN}")
    assert answer.status_code == 302 and "token" not in answer.headers["Location"]
    assert "HttpOnly" in answer.headers["Set-Cookie"] and "SameSite=Strict" in answer.headers["Set-Cookie"]
    assert locked.get("/data/report.json").status_code == 200


def test_nothing_may_be_loaded_from_elsewhere(client: Any) -> None:
    page = client.get("/")
    policy = page.headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy and "unsafe-eval" not in policy
    assert "'unsafe-inline'" not in policy.split("script-src")[1].split(";")[0]
    assert 'lang="en"' in page.text
    assert "http://" not in page.text and "https://" not in page.text


def test_large_requests_are_refused(client: Any) -> None:
    assert (
        client.post("/_dash-update-component", data=b"x" * 2_000_000, content_type="application/json").status_code
        == 413
    )


def test_is_loopback() -> None:
    assert all(is_loopback(host) for host in ("127.0.0.1", "127.1.2.3", "::1", "localhost"))
    assert not any(is_loopback(host) for host in ("0.0.0.0", "::", "10.0.0.1", "example.org", ""))


def test_routes_answer(client: Any, straggler: OpenRun) -> None:
    lanes = client.get("/data/lanes").json
    assert len(lanes["lanes"]) == len(straggler.timeline.lanes)
    only = client.get("/data/lanes?ranks=1").json["lanes"]
    assert {lane["rank"] for lane in only} == {1}
    tile = client.get(f"/data/tile?lanes=0-3&lo={lanes['lo_ns']}&hi={lanes['hi_ns']}&bins=100")
    assert tile.data[:4] == b"DDT1"
    assert client.get("/data/slice?row=0").json["dur_us"] > 0
    assert client.get("/data/search?text=nccl").json["count"] > 0
    assert client.get("/data/statistics?lanes=0&lo=0&hi=1000000").json["span_us"] == 1000
    assert client.get("/data/waits?lo=0&hi=1000000000").json
    assert client.get("/data/report.json").json["schema"] == "ddprof.report/1"


@pytest.mark.parametrize(
    "query",
    ["tile?lanes=0&lo=5&hi=5&bins=10", "tile?lanes=x&lo=0&hi=5&bins=10", "slice?row=-1", "slice?row=abc", "slice",
     "tile?lanes=99999&lo=0&hi=5&bins=10", "table.csv?page=ranks&id=nothing", "table.csv?page=nowhere&id=x"],
)  # fmt: skip
def test_bad_requests_are_one_line(client: Any, query: str) -> None:
    answer = client.get(f"/data/{query}")
    assert answer.status_code == 400
    assert answer.text and "\n" not in answer.text and "Traceback" not in answer.text


def test_csv_of_a_table(client: Any, straggler: OpenRun) -> None:
    answer = client.get("/data/table.csv?page=ranks&id=lateness&ranks=0")
    rows = list(csv.reader(io.StringIO(answer.text)))
    assert rows[0][0] == "rank" and [row[0] for row in rows[1:]] == ["rank 0"]
    assert "attachment" in answer.headers["Content-Disposition"]


def test_text_is_compressed_on_request(client: Any) -> None:
    plain = client.get("/data/report.json")
    packed = client.get("/data/report.json", headers={"Accept-Encoding": "gzip"})
    assert packed.headers["Content-Encoding"] == "gzip" and len(packed.data) < len(plain.data)


def test_a_port_in_use_is_one_line(straggler: OpenRun) -> None:
    first = make_server(Runs([], [straggler]), 0, Access())
    try:
        with pytest.raises(UsageError, match="cannot bind"):
            make_server(Runs([], [straggler]), first.server_port, Access())
    finally:
        first.server_close()


def test_a_folder_that_grows_is_read_again(
    straggler_traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs_module, "LEAST_PAUSE_S", 0.0)
    files = sorted(straggler_traces.glob("*.gz"))
    for file in files[:2]:
        shutil.copy2(file, tmp_path)
    runs = Runs([str(tmp_path)], load([str(tmp_path)]))
    assert len(runs.open_runs[0].report.run.ranks) == 2
    assert runs.refresh() == 1  # nothing changed
    shutil.copy2(files[2], tmp_path)
    assert runs.refresh() == 2
    assert len(runs.open_runs[0].report.run.ranks) == 3
    for file in tmp_path.glob("*.gz"):
        file.unlink()
    assert runs.refresh() == 3 and runs.problem
    assert len(runs.open_runs[0].report.run.ranks) == 3  # what was shown stays


@pytest.mark.parametrize(
    "raised", [OSError(2, "No such file", "rank0.json"), NoUsableInput("cut\x1b[31m"), KeyError("x")]
)
def test_whatever_goes_wrong_while_a_folder_is_read_is_a_note(
    straggler: OpenRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raised: Exception
) -> None:
    def fail(*_: object) -> list[OpenRun]:
        raise raised

    monkeypatch.setattr(runs_module, "LEAST_PAUSE_S", 0.0)
    runs = Runs([str(tmp_path)], [straggler])
    (tmp_path / "rank0.json").write_text("{}")
    with monkeypatch.context() as patch:
        patch.setattr(runs_module, "load", fail)
        assert runs.refresh() == 2 and runs.problem and "\x1b" not in runs.problem
        assert runs.refresh() == 2  # the same problem is no news
    assert runs.open_runs == (straggler,)
    monkeypatch.setattr(runs_module, "load", lambda *_: [straggler, straggler])
    # A file that went is looked for again, even where nothing has changed since.
    assert runs.refresh() == (3 if isinstance(raised, OSError) else 2)


def test_what_is_no_file_beside_a_run_stops_no_look(straggler_traces: Path, tmp_path: Path) -> None:
    for file in straggler_traces.glob("*.gz"):
        shutil.copy2(file, tmp_path)
    (tmp_path / "gone.json").symlink_to(tmp_path / "nothing")
    (tmp_path / "loop.json").symlink_to(tmp_path / "loop.json")
    os.mkfifo(tmp_path / "pipe.json")
    os.mkfifo(tmp_path / "host.h.1.counters.jsonl")
    os.mkdir(tmp_path / "closed", 0)
    (tmp_path / "caf\udce9.json").write_text("{}")
    stamp = runs_module.folder_stamp([str(tmp_path), str(tmp_path / "nothing")])
    assert {Path(name).name for name, _, _ in stamp} >= {file.name for file in straggler_traces.glob("*.gz")}
    assert hosts_now(str(tmp_path)) == []


def test_sessions_of_saved_reports_and_of_nothing(tmp_path: Path, straggler: OpenRun) -> None:
    from ddprof.report.json.contract import to_contract

    file = tmp_path / "saved.json"
    file.write_text(json.dumps(to_contract(straggler.report)))
    opened = load([str(file)])[0]
    assert not opened.has_traces and opened.report.verdict == straggler.report.verdict
    with pytest.raises(NoUsableInput, match="holds no events"):
        _ = opened.job
    (tmp_path / "empty").mkdir()
    with pytest.raises(NoUsableInput):
        load([str(tmp_path / "empty")])


def test_the_session_rebuilds_the_job_of_the_report(straggler: OpenRun) -> None:
    report = straggler.report
    assert straggler.job.rank_ids == report.run.ranks
    assert straggler.job.step_ns / 1e3 == pytest.approx(report.steps.wall_us)
    for name in ("instances", "members", "ledger", "blame"):
        assert len(getattr(straggler.job, name)) == len(report.tables[name])


def test_serve_needs_a_long_token_and_a_run(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from ddprof.cli.serve import command

    short = CliRunner().invoke(command, [str(tmp_path), "--token", "short"])
    assert isinstance(short.exception, UsageError)
    missing = CliRunner().invoke(command, [str(tmp_path)])
    assert isinstance(missing.exception, NoUsableInput)


def test_a_live_server_answers(serve: Callable[..., str], straggler: OpenRun) -> None:
    from urllib.request import urlopen

    with urlopen(serve([straggler]) + "/data/report.json", timeout=20) as answer:
        assert json.load(answer)["verdict"]["headline"] == straggler.report.verdict.headline
