"""Options of every command that reads a run (`--cache`, `--engine`, `--ranks`); what `report` and others tell of it."""

import csv
import gzip
import json
import os
from pathlib import Path

import fsspec
import pytest

READING = [
    *(("analyze", "SAMPLE"), ("report", "SAMPLE"), ("compare", "SAMPLE", "SAMPLE")),
    *(("whatif", "SAMPLE", "--set", "loader=ready"), ("plan", "loader", "SAMPLE", "--now", "num_workers=2")),
    ("verify", "SAMPLE", "SAMPLE", "--with", "num_workers=4"),
]


def test_facts_are_kept_where_it_was_said_only(ddprof, sample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "users"))
    asked = ("analyze", sample("slow_gpu"), "--format", "json")
    named = ("--cache", str(tmp_path / "named"))
    ways = ((), ("--no-cache",), ("--cache", "none"), named, named)
    assert len({ddprof(*asked, *how)[1] for how in ways}) == 1 and not os.path.exists("none")
    assert sorted(os.listdir(tmp_path / "users" / "ddprof" / "facts")) == sorted(os.listdir(tmp_path / "named")) != []


def test_facts_kept_in_a_store(ddprof, sample, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # no folder named "s3:" is made here
    asked = ("analyze", sample("slow_gpu"), "--format", "json", "--cache")
    told = {ddprof(*asked, f"{bucket}/facts")[:2] for _ in range(2)}
    assert {code for code, _ in told} == {0} and len(told) == 1
    files, path = fsspec.core.url_to_fs(f"{bucket}/facts")
    assert len(files.ls(path, refresh=True)) > 1
    code, out, error = ddprof(*asked, f"{bucket}-of-nobody/facts")
    assert (code, error) == (0, "") and "bucket does not exist" in out and os.listdir(tmp_path) == []


@pytest.mark.parametrize("command", READING, ids=" ".join)
def test_every_command_that_reads_a_run_has_them_all(ddprof, sample, command: tuple[str, ...]) -> None:
    given = [sample("starved_loader") if word == "SAMPLE" else word for word in command]
    told = ddprof(*given, "--help")[1]
    assert "--cache PLACE" in told and "--no-cache" in told
    for option, value in (("--engine", "elsewhere"), ("--ranks", "sample:none")):
        code, out, err = ddprof(*given, "--no-cache", option, value)
        assert (code, out) == (2, "") and value in err and err.count("\n") == 1


def test_a_saved_report_becomes_pages_with_a_comparison_where_asked(ddprof, saved: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.html"
    code, told, err = ddprof("report", str(saved), "-o", str(out))
    text = out.read_text(encoding="utf-8")
    assert (code, told) == (0, "") and f"wrote {out}" in err
    assert "Largest saving: " in text and 'id="ranks"' in text and 'id="compare"' not in text and "node-b" in text
    assert ddprof("report", str(saved), "-o", str(out), "--redact")[0] == 0
    assert "node-b" not in out.read_text(encoding="utf-8")
    assert ddprof("report", str(saved), "--against", str(saved), "-o", str(out))[0] == 0
    assert 'id="compare"' in out.read_text(encoding="utf-8")


def test_the_demo_writes_the_same_file(ddprof, sample, tmp_path: Path) -> None:
    demo, report = tmp_path / "demo.html", tmp_path / "report.html"
    assert ddprof("demo", "slow_gpu", "-o", str(demo))[0] == 0
    assert ddprof("report", f"{sample('slow_gpu')}/traces", "--no-cache", "-o", str(report))[0] == 0
    assert 'id="timeline-tile"' in demo.read_text(encoding="utf-8")
    assert demo.read_text(encoding="utf-8") == report.read_text(encoding="utf-8")


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


def test_arrows_of_chosen_ranks_are_counted_and_reports_have_none(ddprof, sample, tmp_path: Path, saved: Path) -> None:
    for ranks, has_arrows in (("0-3", True), ("0", False)):
        code, _, err = ddprof("export", sample("slow_gpu"), "--ranks", ranks, "-o", str(tmp_path / "x.json.gz"))
        document = json.loads(gzip.decompress((tmp_path / "x.json.gz").read_bytes()))
        arrows = sum(event["ph"] == "s" for event in document["traceEvents"])
        assert code == 0 and f" and {arrows} waits to " in err and (arrows > 0) is has_arrows
    for ranks in ("²", "0-²", "x", "99"):  # "²".isdigit(), and int() refuses it
        code, _, err = ddprof("export", sample("slow_gpu"), "--ranks", ranks)
        assert code == 2 and err.startswith("ddprof: --ranks")
    code, _, err = ddprof("export", str(saved), "-o", str(tmp_path / "x.json"))
    assert (code, len(err.splitlines())) == (4, 1) and str(saved) in err and "holds no events" in err
    assert ddprof("export", str(saved), "--to", "csv", "-o", str(tmp_path / "tables"))[0] == 0


def test_the_kernel_table_is_exported_and_sums_to_the_ledger(ddprof, sample, tmp_path: Path) -> None:
    busy = ("compute", "comm_wait", "comm_transfer", "pipeline_bubble", "memcpy")
    for extra in ((), ("--redact",)):
        out = tmp_path / f"tables{len(extra)}"
        assert ddprof("export", sample("slow_gpu"), "--to", "csv", "-o", str(out), *extra)[0] == 0
        kernels = list(csv.DictReader((out / "kernels.csv").open(encoding="utf-8")))
        causes = list(csv.DictReader((out / "rank_causes.csv").open(encoding="utf-8")))
        for rank in {row["rank"] for row in causes}:
            found = sum(float(row["busy_us"]) for row in kernels if row["rank"] == rank)
            booked = sum(float(row["mean_us"]) for row in causes if row["rank"] == rank and row["cause"] in busy)
            assert abs(found - booked) < 1e-3 * booked
        assert "## kernels" in (out / "columns.md").read_text(encoding="utf-8")


def test_many_slices_are_in_perfettos_format(ddprof, sample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert ddprof("export", sample("slow_gpu"))[0] == 0
    monkeypatch.setattr("ddprof.cli.export.MOST_AS_TEXT", 10)
    assert ddprof("export", sample("slow_gpu"))[0] == 0
    assert ddprof("export", sample("slow_gpu"), "-o", "own.json")[0] == 0  # the name decides
    written = {file.name: file for file in tmp_path.iterdir()}
    assert sorted(written) == ["ddprof-trace.json.gz", "ddprof-trace.pftrace.gz", "own.json"]
    assert gzip.decompress(written["ddprof-trace.pftrace.gz"].read_bytes())[:1] == b"\n"  # the first packet
    assert written["own.json"].read_text().startswith("{")
