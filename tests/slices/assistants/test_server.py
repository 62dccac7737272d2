"""`ddprof mcp` answers the official client, from the folders that it was given and from no others."""

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp")
from mcp import Client, StdioServerParameters

from ddprof.errors import NoUsableInput, UsageError
from ddprof.slices.assistants import answers
from ddprof.slices.assistants.answers import MOST_LISTED, Allowed
from ddprof.slices.assistants.server import make_server

SAMPLES = Path(__file__).resolve().parents[3] / "sample_traces"
Call = tuple[str, dict[str, Any]]
REFUSED = [
    (("verdict", {"run": "../tests"}), "all that may be read"),
    (("verdict", {"run": "/etc"}), "all that may be read"),
    (("compare", {"before": "late_loader", "after": "/etc/passwd"}), "all that may be read"),
    (("hang", {"run": "no\0such"}), "all that may be read"),
    (("finding", {"run": "late_loader", "id": "input.stragler"}), "did you mean input.straggler"),
    (("explain_finding", {"id": "input.stragler"}), "did you mean input.straggler"),
    (("what_if", {"run": "late_loader", "settings": []}), "want at least one"),
    (("what_if", {"run": "late_loader", "settings": ["num_workers=4"]}), "not recorded"),
    (("what_if", {"run": "late_loader", "settings": ["numworkers=4"]}), "num_workers"),
    (("hang", {"run": "late_loader"}), "no dump, no stack"),
]


def asked(server: Any, calls: Sequence[Call]) -> list[tuple[bool, str]]:
    """(whether it was refused, the text) of each call, in one session."""

    async def session() -> list[tuple[bool, str]]:
        async with Client(server) as client:
            results = [await client.call_tool(name, given) for name, given in calls]
        return [(bool(result.is_error), "".join(part.text for part in result.content)) for result in results]

    return asyncio.run(session())


@pytest.fixture(scope="module")
def server() -> Any:
    return make_server(Allowed.of([str(SAMPLES)]))


def test_every_tool_says_that_it_only_reads(server: Any) -> None:
    async def tools() -> list[Any]:
        async with Client(server) as client:
            return list((await client.list_tools()).tools)

    found = asyncio.run(tools())
    names = "list_runs verdict finding what_if compare kernels explain_finding hang"
    assert {tool.name for tool in found} == set(names.split())
    assert all(tool.annotations.read_only_hint and tool.description for tool in found)


def test_a_run_its_predictions_comparisons_and_kernels_are_told_as_by_the_commands(server: Any) -> None:
    late = json.loads((SAMPLES / "late_loader" / "truth.json").read_text())["findings"][0]["ranks"]
    run, rule = {"run": "late_loader"}, {"id": "input.straggler"}
    calls: list[Call] = [("list_runs", {}), ("verdict", run), ("finding", run | rule), ("explain_finding", rule)]
    runs, verdict, finding, page = asked(server, calls)
    assert "late_loader/traces" in runs[1].splitlines() and f"loader of rank {late[0]} is late" in verdict[1]
    (row,) = json.loads(finding[1])
    assert row["ranks"] == late and row["evidence"] and row["recoverable_us"]["value"] > 0
    assert "How the gain is priced" in page[1] and not any(refused for refused, _ in (runs, verdict, finding, page))
    calls = [("what_if", {**run, "settings": {"num_workers": 4}, "now": ["num_workers=1"]})]
    calls += [("compare", {"before": "late_loader", "after": "late_loader"})]
    calls += [
        ("kernels", {**run, "most": 2}),
        ("kernels", {**run, "contains": "allreduce"}),
        ("kernels", {**run, "contains": "."}),
    ]
    what_if, compared, kernels, one, dots = asked(server, calls)
    assert "->" in what_if[1] and "then: " in what_if[1] and not compared[0] and "before" in compared[1]
    table = json.loads(kernels[1])
    assert len(table["rows"]) == 2 and table["rows_left_out"] > 0
    assert table["rows"][0]["busy_us"] >= table["rows"][1]["busy_us"] > 0
    assert all("allreduce" in json.dumps(row).lower() for row in json.loads(one[1])["rows"])
    texts = [[v for v in row.values() if isinstance(v, str)] for row in json.loads(dots[1])["rows"]]
    assert all(any("." in text for text in row) for row in texts)  # of names: a time has a dot, too


@pytest.mark.parametrize(("call", "said"), REFUSED)
def test_what_cannot_be_answered_is_refused_in_a_line(server: Any, call: Call, said: str) -> None:
    ((refused, text),) = asked(server, [call])
    assert refused and said in text and "Traceback" not in text


def test_it_speaks_on_stdio_and_ends_with_its_client() -> None:
    program = StdioServerParameters(command=sys.executable, args=["-m", "ddprof.cli.main", "mcp", str(SAMPLES)])
    ((refused, text),) = asked(program, [("verdict", {"run": "healthy"})])
    assert not refused and "Compute-bound" in text


def test_a_link_that_leads_out_is_refused(tmp_path: Path) -> None:
    inside, outside = tmp_path / "runs", tmp_path / "secret"
    shutil.copytree(SAMPLES / "late_loader", inside / "mine")
    shutil.copytree(SAMPLES / "late_loader", outside)
    (inside / "link").symlink_to(outside)
    allowed = Allowed.of([str(inside)])
    assert allowed.path("mine") == str(inside / "mine")
    for name in ("link", "link/traces", str(outside), "mine/../../secret"):
        with pytest.raises(NoUsableInput):
            allowed.path(name)


def test_the_newest_runs_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Allowed.of([str(tmp_path)]).runs() == []
    monkeypatch.setattr("ddprof.slices.assistants.answers.MOST_LISTED", 2)
    assert MOST_LISTED > 2
    for number in range(3):
        shutil.copytree(SAMPLES / "healthy", tmp_path / f"run{number}")
        for file in (tmp_path / f"run{number}").rglob("*"):
            os.utime(file, (1e9 + number, 1e9 + number))
    listing = answers.Answers(Allowed.of([str(tmp_path)])).list_runs()
    assert listing.splitlines() == ["run2/traces", "run1/traces", "[1 older runs are left out]"]
    with pytest.raises(UsageError, match="no such folder"):
        Allowed.of([str(tmp_path / "none")])


def test_a_long_answer_is_cut_and_says_so() -> None:
    text = answers.bounded("x" * (answers.MOST_CHARACTERS + 7))
    assert text.endswith("[7 more characters are left out]") and answers.bounded("short") == "short"
