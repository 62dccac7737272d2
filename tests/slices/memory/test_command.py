"""`ddprof memory`, and `ddprof analyze` of a snapshot."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from snapshots import FORWARD, MIB, PARAMETERS, Allocator, write

from ddprof.cli.main import cli
from ddprof.errors import NoUsableInput, UsageError


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    allocator = Allocator()
    allocator.alloc(30 * MIB, PARAMETERS)
    allocator.free(allocator.alloc(10 * MIB, FORWARD))
    allocator.fail(4096 * MIB, 5 * MIB, FORWARD)
    return write(tmp_path / "rank0.pickle", allocator.dump())


def said(*arguments: str) -> str:
    result = CliRunner().invoke(cli, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_text_says_category_line_and_what_failed_and_analyze_the_same(snapshot: Path) -> None:
    text = said("memory", str(snapshot))
    assert "Device 0: tensors held 40 MiB at the peak" in text and "would not have fitted" in text
    assert "parameters" in text and "75 %" in text and "model.py:12 forward" in text
    assert "asked for 4 GiB; the device had 5 MiB left" in text and said("analyze", str(snapshot)) == text


def test_a_folder_of_ranks_as_json_one_file_of_html_and_what_is_refused(snapshot: Path, tmp_path: Path) -> None:
    write(snapshot.parent / "rank1.pickle", Allocator().dump())
    (snapshot.parent / "notes.txt").write_text("not a snapshot")
    folder = str(snapshot.parent)
    document = json.loads(answer := said("memory", folder, "--format", "json"))
    assert said("analyze", folder, "--format", "json") == answer
    assert document["schema"] == "ddprof.memory/1" and len(document["snapshots"]) == 2
    peak = document["snapshots"][0]["devices"][0]["peak"]
    assert peak["allocated_bytes"] == sum(share["bytes"] for share in peak["categories"]) == 40 * MIB
    assert peak["lines"][0]["file"] == "/home/me/train.py" and peak["lines"][0]["bytes"] == 30 * MIB
    failure = document["snapshots"][0]["devices"][0]["out_of_memory"][0]
    assert failure["at_line"]["line"] == 12 and failure["asked_bytes"] == 4096 * MIB
    out = tmp_path / "memory.html"
    said("memory", str(snapshot), "-o", str(out))
    text = out.read_text()
    assert "What is the peak made of?" in text and "Which allocations failed?" in text
    assert "http" not in text.split("<script", 1)[0].replace("http-equiv", "")
    with pytest.raises(UsageError, match="has no steps"):
        CliRunner().invoke(cli, ["analyze", str(snapshot), "--fail-on", "warning"], catch_exceptions=False)
    with pytest.raises(NoUsableInput, match="no memory snapshot"):
        CliRunner().invoke(cli, ["memory", str(tmp_path / "notes.txt")], catch_exceptions=False)
