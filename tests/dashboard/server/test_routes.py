"""The data routes of the server: what each answers, and one line for what it cannot."""

import csv
import io

import pytest

from ddprof.dashboard.http import make_server
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.dashboard.runs.served import Runs
from ddprof.dashboard.server.guard import Access
from ddprof.errors import UsageError

BAD = ["tile?lanes=0&lo=5&hi=5&bins=10", "tile?lanes=x&lo=0&hi=5&bins=10", "slice?row=-1", "slice?row=abc", "slice",
 "tile?lanes=99999&lo=0&hi=5&bins=10", "table.csv?page=ranks&id=nothing", "table.csv?page=nowhere&id=x"]  # fmt: skip


def test_routes_answer_a_csv_of_a_table_and_compressed_text(client, straggler: OpenRun) -> None:
    lanes = client.get("/data/lanes").json
    assert len(lanes["lanes"]) == len(straggler.timeline.lanes)
    assert {lane["rank"] for lane in client.get("/data/lanes?ranks=1").json["lanes"]} == {1}
    tile = client.get(f"/data/tile?lanes=0-3&lo={lanes['lo_ns']}&hi={lanes['hi_ns']}&bins=100")
    assert tile.data[:4] == b"DDT1" and client.get("/data/slice?row=0").json["dur_us"] > 0
    assert client.get("/data/search?text=nccl").json["count"] > 0
    assert client.get("/data/statistics?lanes=0&lo=0&hi=1000000").json["span_us"] == 1000
    assert client.get("/data/waits?lo=0&hi=1000000000").json
    assert client.get("/data/report.json").json["schema"] == "ddprof.report/1"
    answer = client.get("/data/table.csv?page=ranks&id=lateness&ranks=0")
    rows = list(csv.reader(io.StringIO(answer.text)))
    assert rows[0][0] == "rank" and [row[0] for row in rows[1:]] == ["rank 0"]
    assert "attachment" in answer.headers["Content-Disposition"]
    plain = client.get("/data/report.json")
    packed = client.get("/data/report.json", headers={"Accept-Encoding": "gzip"})
    assert packed.headers["Content-Encoding"] == "gzip" and len(packed.data) < len(plain.data)


@pytest.mark.parametrize("query", BAD)
def test_bad_requests_are_one_line(client, query: str) -> None:
    answer = client.get(f"/data/{query}")
    assert answer.status_code == 400
    assert answer.text and "\n" not in answer.text and "Traceback" not in answer.text


def test_a_port_in_use_is_one_line(straggler: OpenRun) -> None:
    first = make_server(Runs([], [straggler]), 0, Access())
    try:
        with pytest.raises(UsageError, match="cannot bind"):
            make_server(Runs([], [straggler]), first.server_port, Access())
    finally:
        first.server_close()
