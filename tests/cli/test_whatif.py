"""`ddprof whatif` and `ddprof plan` on the command line: what they print, and one line for what they cannot do."""

from __future__ import annotations

import json

import pytest


@pytest.fixture
def starved(sample) -> str:
    """A shipped sample with a slow loader."""
    return str(sample("starved_loader"))


def test_a_prediction_as_text_and_as_json_and_from_some_ranks(ddprof, starved: str) -> None:
    asked = ("whatif", starved, "--set", "loader=ready")
    for told in (ddprof(*asked), ddprof(*asked, "--ranks", "0")):
        assert told[0] == 0 and "as recorded" in told[1] and "then:" in told[1]
    document = json.loads(ddprof(*asked, "--format", "json")[1])
    assert document["schema"] == "ddprof.whatif/1"
    assert document["low_us"] <= document["predicted_step_us"] <= document["high_us"]
    assert document["predicted_step_us"] < document["step_us"]
    assert document["levels"][-1]["step_us"] == document["predicted_step_us"]


def test_the_settings_are_listed(ddprof) -> None:
    code, out, _ = ddprof("whatif", "--list")
    assert code == 0 and "bucket_cap_mb" in out and "num_workers" in out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("whatif",), "--set KEY=VALUE"),
        (("whatif", "SAMPLE", "--set", "speed=2"), "unknown setting; known: bandwidth"),
        (("whatif", "SAMPLE", "--set", "bandwidth=2", "--now", "x=1"), "--now x: unknown"),
        (("plan", "buckets", "SAMPLE", "--now", "bucket_cap_mb"), "KEY=VALUE"),
    ],
)
def test_wrong_usage_is_one_line_and_code_2(ddprof, starved: str, arguments: tuple[str, ...], says: str) -> None:
    code, out, err = ddprof(*(starved if a == "SAMPLE" else a for a in arguments))
    assert (code, out) == (2, "") and says in err and len(err.strip().splitlines()) == 1


def test_plans_print_a_curve_and_json(ddprof, starved: str) -> None:
    asked = ("plan", "loader", starved, "--now", "num_workers=2")
    code, out, _ = ddprof(*asked)
    assert code == 0 and "num_workers" in out and "advised" in out
    document = json.loads(ddprof(*asked, "--format", "json")[1])
    assert document["schema"] == "ddprof.plan.loader/1" and document["advised_workers"] >= 1
    assert document["workers"]["best"] in document["workers"]["flat"]


SHAPE = ("--params", "7e9", "--layers", "32", "--hidden", "4096", "--batch", "64")


@pytest.mark.parametrize("kind", ["scale", "sharding"])
def test_a_model_without_a_run_is_planned(ddprof, kind: str) -> None:
    code, out, _ = ddprof("plan", kind, *SHAPE, "--world", "16")
    assert code == 0 and "MFU" in out and "assumed:" in out and "does not fit" in out
    code, out, _ = ddprof("plan", kind, *SHAPE, "--world", "16", "--format", "json")
    document = json.loads(out)
    assert document["schema"] == f"ddprof.plan.{kind}/1" and document["layouts"][0]["fits"]
    if kind == "sharding":
        assert all(item["layout"]["tensor"] == item["layout"]["pipeline"] == 1 for item in document["layouts"])


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ((*SHAPE, "--gpu", "abacus"), 2, "known: A100-80GB"),
        ((*SHAPE, "--optimizer", "hope"), 2, "one of adam"),
        ((), 2, "--layers, --hidden and --world"),
        ((*SHAPE, "--params", "1e6"), 2, "fewer than the embedding"),
        ((*SHAPE, "--layers", "31", "--batch", "7", "--world", "64"), 4, "cannot be divided"),
    ],
)
def test_plans_that_make_no_sense_are_one_line(ddprof, arguments: tuple[str, ...], code: int, says: str) -> None:
    ended, out, err = ddprof("plan", "scale", "--world", "16", *arguments)
    assert (ended, out) == (code, "") and says in err


def test_a_run_is_scaled_and_sharded(ddprof, sample) -> None:
    code, out, _ = ddprof("plan", "scale", sample("no_overlap"), "--world", "16")
    assert code == 0 and "now" in out and "assumed:" in out
    code, out, _ = ddprof("plan", "sharding", sample("no_overlap"))
    assert code == 0 and "* DDP" in out and "gradient compression" in out


@pytest.mark.parametrize(
    "command",
    [
        ("whatif", "SAMPLE", "--set", "loader=ready"),
        ("plan", "loader", "SAMPLE", "--now", "num_workers=2"),
        ("report", "SAMPLE"),
        ("compare", "SAMPLE", "SAMPLE"),
        ("verify", "SAMPLE", "SAMPLE", "--with", "num_workers=4"),
    ],
)
def test_every_command_that_reads_a_run_takes_an_engine_and_ranks(ddprof, starved: str, command) -> None:
    given = [starved if part == "SAMPLE" else part for part in command]
    for option, value in (("--engine", "elsewhere"), ("--ranks", "sample:none")):
        code, out, err = ddprof(*given, "--no-cache", option, value)
        assert (code, out) == (2, "") and value in err and err.count("\n") == 1
