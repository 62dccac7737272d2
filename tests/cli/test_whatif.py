"""`ddprof whatif` on the command line: what it prints."""

import json


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
