"""`ddprof plan` on the command line: what it prints, and one line for what it cannot do."""

import json

import pytest

SHAPE = ("--params", "7e9", "--layers", "32", "--hidden", "4096", "--batch", "64")
NO_SENSE = [
    ((*SHAPE, "--gpu", "abacus"), 2, "known: A100-80GB"),
    ((*SHAPE, "--optimizer", "hope"), 2, "one of adam"),
    ((), 2, "--layers, --hidden and --world"),
    ((*SHAPE, "--params", "1e6"), 2, "fewer than the embedding"),
    *(((*SHAPE, "--params", value), 2, "--params") for value in ("0", "inf", "nan")),
    *(((*SHAPE, "--node-gbps", value), 2, "--node-gbps") for value in ("0", "-100", "nan", "inf")),
    ((*SHAPE, "--layers", "31", "--batch", "7", "--world", "64"), 4, "cannot be divided"),
]


def test_plans_print_a_curve_and_json_and_a_setting_without_a_value_is_refused(ddprof, sample) -> None:
    asked = ("plan", "loader", sample("starved_loader"), "--now", "num_workers=2")
    code, out, _ = ddprof(*asked)
    assert code == 0 and "num_workers" in out and "advised" in out
    document = json.loads(ddprof(*asked, "--format", "json")[1])
    assert document["schema"] == "ddprof.plan.loader/1" and document["advised_workers"] >= 1
    assert document["workers"]["best"] in document["workers"]["flat"]
    code, out, err = ddprof("plan", "buckets", sample("starved_loader"), "--now", "bucket_cap_mb")
    assert (code, out) == (2, "") and "KEY=VALUE" in err and len(err.strip().splitlines()) == 1


@pytest.mark.parametrize("kind", ["scale", "sharding"])
def test_a_model_without_a_run_is_planned(ddprof, kind: str) -> None:
    code, out, _ = ddprof("plan", kind, *SHAPE, "--world", "16")
    assert code == 0 and "MFU" in out and "assumed:" in out and "does not fit" in out
    code, out, _ = ddprof("plan", kind, *SHAPE, "--world", "16", "--format", "json")
    document = json.loads(out)
    assert document["schema"] == f"ddprof.plan.{kind}/1" and document["layouts"][0]["fits"]
    if kind == "sharding":
        assert all(item["layout"]["tensor"] == item["layout"]["pipeline"] == 1 for item in document["layouts"])


@pytest.mark.parametrize(("arguments", "code", "says"), NO_SENSE)
def test_plans_that_make_no_sense_are_one_line(ddprof, arguments: tuple[str, ...], code: int, says: str) -> None:
    ended, out, err = ddprof("plan", "scale", "--world", "16", *arguments)
    assert (ended, out) == (code, "") and says in err


def test_a_run_is_scaled_and_sharded(ddprof, sample) -> None:
    code, out, _ = ddprof("plan", "scale", sample("no_overlap"), "--world", "16")
    assert code == 0 and "now" in out and "assumed:" in out
    code, out, _ = ddprof("plan", "sharding", sample("no_overlap"))
    assert code == 0 and "* DDP" in out and "gradient compression" in out
