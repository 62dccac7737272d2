"""`ddprof whatif` on the command line: what it prints, and one line for what it cannot do."""

import json

import pytest


def test_settings_are_listed_and_predicted_as_text_as_json_and_from_some_ranks(ddprof, sample) -> None:
    code, out, _ = ddprof("whatif", "--list")
    assert code == 0 and "bucket_cap_mb" in out and "num_workers" in out
    asked = ("whatif", sample("starved_loader"), "--set", "loader=ready")
    for told in (ddprof(*asked), ddprof(*asked, "--ranks", "0")):
        assert told[0] == 0 and "as recorded" in told[1] and "then:" in told[1]
    document = json.loads(ddprof(*asked, "--format", "json")[1])
    assert document["schema"] == "ddprof.whatif/1"
    assert document["low_us"] <= document["predicted_step_us"] <= document["high_us"]
    assert document["predicted_step_us"] < document["step_us"]
    assert document["levels"][-1]["step_us"] == document["predicted_step_us"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("whatif",), "--set KEY=VALUE"),
        (("whatif", "SAMPLE", "--set", "speed=2"), "unknown setting; known: bandwidth"),
        (("whatif", "SAMPLE", "--set", "bandwidth=2", "--now", "x=1"), "--now x: unknown"),
    ],
)
def test_wrong_usage_is_one_line_and_code_2(ddprof, sample, arguments: tuple[str, ...], says: str) -> None:
    code, out, err = ddprof(*(sample("starved_loader") if a == "SAMPLE" else a for a in arguments))
    assert (code, out) == (2, "") and says in err and len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    "command",
    [
        ("whatif", "SAMPLE", "--set", "loader=ready"),
        ("plan", "loader", "SAMPLE", "--now", "num_workers=2"),
        *(("report", "SAMPLE"), ("compare", "SAMPLE", "SAMPLE")),
        ("verify", "SAMPLE", "SAMPLE", "--with", "num_workers=4"),
    ],
)
def test_every_command_that_reads_a_run_takes_an_engine_and_ranks(ddprof, sample, command) -> None:
    given = [sample("starved_loader") if part == "SAMPLE" else part for part in command]
    for option, value in (("--engine", "elsewhere"), ("--ranks", "sample:none")):
        code, out, err = ddprof(*given, "--no-cache", option, value)
        assert (code, out) == (2, "") and value in err and err.count("\n") == 1
