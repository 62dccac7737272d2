"""`ddprof verify`: a prediction, the changed run, and what is kept of the two."""

import json
import shutil
from pathlib import Path

import pytest

REFUSED = [
    ((), 2, "either AFTER or `-- COMMAND"),
    (("AFTER",), 2, "either --with"),
    (("AFTER", "--finding", "host.gc"), 2, "its findings: input.starved"),
    (("OTHER", "--with", "loader=ready", "--no-cache"), 4, "another kind of run"),
    (("--with", "loader=ready", "--no-cache", "--", "false"), 1, "ended with 1: nothing verified"),
]


@pytest.fixture
def runs(sample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """Two copies of one run, so that "nothing changed" is the right prediction."""
    monkeypatch.setenv("DDPROF_DATA_HOME", str(tmp_path / "data"))
    for name in ("before", "after"):
        shutil.copytree(sample("starved_loader"), tmp_path / name)
    return str(tmp_path / "before"), str(tmp_path / "after")


def test_a_true_prediction_is_kept_and_quoted_unless_it_is_not_wanted(ddprof, runs, tmp_path: Path) -> None:
    asked = ("verify", *runs, "--with", "bandwidth=1", "--no-cache")
    assert ddprof(*asked, "--no-record")[0] == 0 and not (tmp_path / "data").exists()
    code, out, _ = ddprof(*asked, "--format", "json")
    document = json.loads(out)
    assert code == 0 and document["outcome"] == "inside" and document["kinds"] == ["scale_transfer"]
    assert document["measured_low_us"] is None or document["measured_low_us"] <= document["measured_us"]
    for folder in ("data", "before"):
        assert (tmp_path / folder / "calibration.jsonl").read_text().count("\n") == 1
    assert "2 of 2 similar predictions were within range" in ddprof(*asked)[1]


def test_a_false_prediction_is_said_and_the_finding_remembers(ddprof, runs) -> None:
    code, out, _ = ddprof("verify", *runs, "--finding", "input.starved", "--no-cache")
    assert code == 0 and "outside the predicted range" in out and "too short" in out
    code, out, _ = ddprof("analyze", runs[0], "--format", "json", "--no-cache")
    known = {f["id"]: f["calibration"] for f in json.loads(out)["findings"]}
    assert known["input.starved"] == {"inside": 0, "predictions": 1}


@pytest.mark.parametrize(("extra", "code", "says"), REFUSED)
def test_what_cannot_be_verified_is_one_line(ddprof, runs, sample, extra, code: int, says: str, tmp_path: Path) -> None:
    arguments = [{"AFTER": runs[1], "OTHER": sample("healthy")}.get(word, word) for word in extra]
    at = arguments.index("--") if "--" in arguments else len(arguments)
    ended, out, err = ddprof("verify", runs[0], *arguments[:at], "--out", str(tmp_path / "out"), *arguments[at:])
    assert (ended, out) == (code, "") and says in err
