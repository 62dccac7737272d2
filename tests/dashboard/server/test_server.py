"""Answers of the server: the data routes, calls of our own callbacks with values of their types, bounded totals."""

import csv
import io
from functools import partial
from typing import Any

import pytest

from ddprof.dashboard.app import create_app
from ddprof.dashboard.http import make_server
from ddprof.dashboard.runs import open_run
from ddprof.dashboard.runs.open_run import KeptTimelines, OpenRun
from ddprof.dashboard.runs.served import Runs
from ddprof.dashboard.server.guard import _VALUES, Access
from ddprof.dashboard.timeline.lanes import Timeline, build_timeline
from ddprof.errors import UsageError

CALL, MANY = "/_dash-update-component", ",".join(["0-999999999"] * 900)
BAD = [
    *("tile?lanes=0&lo=5&hi=5&bins=10", "tile?lanes=x&lo=0&hi=5&bins=10", "tile?lanes=99999&lo=0&hi=5&bins=10"),
    *("slice?row=-1", "slice?row=abc", "slice", "table.csv?page=ranks&id=nothing", "table.csv?page=nowhere&id=x"),
    *("tile?lo=0&hi=10&bins=70000", "tile?lo=0&hi=10&bins=" + "9" * 4_500, f"statistics?lo=0&hi=10&lanes={MANY}"),
    *("tile?lo=-" + "9" * 18 + "&hi=10&bins=1&lanes=0-9999999999", "slice?row=" + "9" * 18, "waits?lo=5&hi=5"),
    *("search?text=" + "x" * 201, "search?" + "&".join(f"a{i}=x" for i in range(100)), "statistics?lo=nan&hi=1"),
]


def drawn(search: object = "", path: object = "/", **other: object) -> dict[str, object]:
    """Body of the callback that draws a page."""
    values = (("address", "pathname", path), ("address", "search", search), ("version", "data", 1))
    return {
        "output": "..top.children...navigation.children...content.children..",
        "outputs": [{"id": part, "property": "children"} for part in ("top", "navigation", "content")],
        "inputs": [{"id": i, "property": p, "value": v} for i, p, v in values],
        "changedPropIds": ["address.search"],
        **other,
    }


JSON = "application/json"
NO_CALLS = [
    *(({"json": body}, 400) for body in ([], "x", 1, {}, {"output": "version.data"})),
    *(({"json": drawn(search)}, 400) for search in (1, [], "x" * 40_000, "\ud800")),
    *(({"json": drawn(inputs=inputs)}, 400) for inputs in ([], {}, [[]], None)),
    *(({"json": drawn(output=output)}, 400) for output in ("nothing.children", [])),
    *(({"json": drawn(outputs=outputs)}, 400) for outputs in ({"id": 1}, [])),
    *(({"json": drawn(**odd)}, 400) for odd in ({"state": 7}, {"path": {"a": 1}}, {"changedPropIds": [1]})),
    *(({"data": body, "content_type": JSON}, 400) for body in (b"[" * 500_000, b'{"output":' * 90_000, b"\xff\xfe{}")),
    ({"data": b'{"output": "version.data", "more": ' + b"[" * 90_000, "content_type": JSON}, 400),
    ({"data": b'{"output": ' + b"9" * 9_000 + b"}", "content_type": JSON}, 400),
    ({"data": b"{}", "content_type": "text/plain"}, 415),
    ({"data": b"x" * 2_000_000, "content_type": JSON}, 413),
]


def test_routes_answer_a_csv_of_a_table_and_compressed_text(client, straggler: OpenRun) -> None:
    lanes = client.get("/data/lanes").json
    assert len(lanes["lanes"]) == len(straggler.timeline.lanes)
    assert {lane["rank"] for lane in client.get("/data/lanes?ranks=1").json["lanes"]} == {1}
    tile = client.get(f"/data/tile?lanes=0-3&lo={lanes['lo_ns']}&hi={lanes['hi_ns']}&bins=100")
    assert tile.data[:4] == b"DDT1" and client.get("/data/slice?row=0").json["dur_us"] > 0
    assert client.get("/data/search?text=nccl").json["count"] > 0
    assert client.get("/data/statistics?lanes=0&lo=0&hi=1000000").json["span_us"] == 1000
    assert client.get("/data/waits?lo=0&hi=1000000000").json
    answer = client.get("/data/table.csv?page=ranks&id=lateness&ranks=0")
    head, *rows = csv.reader(io.StringIO(answer.text))
    assert head[0] == "rank" and [row[0] for row in rows] == ["rank 0"]
    assert "attachment" in answer.headers["Content-Disposition"]
    plain, packed = (client.get("/data/report.json", headers={"Accept-Encoding": how}) for how in ("", "gzip"))
    assert plain.json["schema"] == "ddprof.report/1"
    assert packed.headers["Content-Encoding"] == "gzip" and len(packed.data) < len(plain.data)


@pytest.mark.parametrize("query", BAD)
def test_bad_and_too_large_requests_are_one_line(client, query: str) -> None:
    answer = client.get(f"/data/{query}")
    assert answer.status_code == 400 and answer.text
    assert "\n" not in answer.text and "Traceback" not in answer.text


def test_a_port_in_use_is_one_line(straggler: OpenRun) -> None:
    first = make_server(Runs([], [straggler]), 0, Access())
    try:
        with pytest.raises(UsageError, match="cannot bind"):
            make_server(Runs([], [straggler]), first.server_port, Access())
    finally:
        first.server_close()


def test_every_property_that_a_callback_takes_has_a_type(straggler: OpenRun) -> None:
    callbacks = create_app(Runs([], [straggler]), Access()).callback_map.values()
    taken = [named for call in callbacks if "callback" in call for named in call["inputs"] + call["state"]]
    assert {f"{'*' if of['property'] == 'n_intervals' else of['id']}.{of['property']}" for of in taken} == set(_VALUES)


@pytest.mark.parametrize(
    "search", ["", "?run=" + "9" * 5_000, "?run=²", "?steps=99", *map("?ranks={}".format, (0, 99, "x"))]
)
@pytest.mark.parametrize("path", ["/", "/ranks", "/host", "/timeline?from=nan", "/nowhere", "/live"])
def test_what_a_reader_can_type_is_drawn_or_said(client, search: str, path: str) -> None:
    assert client.post(CALL, json=drawn(search, path)).status_code == 200


@pytest.mark.parametrize(("call", "status"), NO_CALLS, ids=lambda given: repr(given)[:60])
def test_what_is_no_call_of_ours_is_refused(client, call: dict[str, Any], status: int) -> None:
    answer = client.post(CALL, **call)
    assert answer.status_code == status and "\n" not in answer.text


def test_ranks_beyond_those_recorded_are_no_load_and_few_operators_are_read_at_once(
    client, straggler: OpenRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert client.get(f"/data/lanes?ranks={MANY}").status_code == 200
    assert client.get("/data/lanes?expanded=0-999999999").status_code == (400 if len(straggler.job.ranks) > 4 else 200)
    monkeypatch.setattr(open_run, "MAX_EXPANDED_EVENTS", 10)
    answer = client.get("/data/lanes?expanded=1")
    assert answer.status_code == 400 and "events: at most 10 are read at once" in answer.text


def test_kept_timelines_are_bounded_in_bytes(straggler: OpenRun) -> None:
    size = build_timeline(straggler.job).held_bytes
    kept, built = KeptTimelines(2 * size + 1), []

    def build(rank: int) -> Timeline:
        built.append(rank)
        return build_timeline(straggler.job)

    for rank in (0, 1, 2, 2, 1, 0):
        kept.get((1, frozenset({rank})), partial(build, rank))
        assert kept.kept_bytes <= 2 * size + 1
    assert built == [0, 1, 2, 0]
    tiny = KeptTimelines(1)
    assert tiny.get((1, frozenset({0})), partial(build, 0)) and tiny.kept_bytes == size
